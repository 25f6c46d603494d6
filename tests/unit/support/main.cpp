// The main() of the doctest programs. Its last line is `N passed, N failed, N skipped`, counted in
// test cases; doctest itself counts a case that returned early as one that passed.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/unit/support/tally.hpp"

#include <cstdio>
#include <iostream>
#include <set>

namespace nsbox::tests {

namespace {

struct Counts {
    std::string running;
    std::set<std::string> skipped;
    unsigned run = 0;
    unsigned failed = 0;
};

Counts& counts()
{
    static Counts counts;
    return counts;
}

class Counter : public doctest::IReporter {
public:
    explicit Counter(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& data) override
    {
        counts().running = data.m_name;
    }
    void test_run_end(const doctest::TestRunStats& stats) override
    {
        counts().run = stats.numTestCasesPassingFilters;
        counts().failed = stats.numTestCasesFailed;
    }
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("counter", 1, Counter);

constexpr int all_skipped = 77;  // Meson shows that as SKIP.

}  // namespace

const std::string& current_test()
{
    return counts().running;
}

void record_skip(const std::string& reason)
{
    if (counts().skipped.insert(counts().running).second)
        std::cout << "SKIP: " << counts().running << ": " << reason << std::endl;
}

}  // namespace nsbox::tests

int main(int argc, char** argv)
{
    using namespace nsbox::tests;
    if (const int status = before_tests(argc, argv); status >= 0)
        return status;
    doctest::Context context(argc, argv);
    const int status = context.run();
    if (context.shouldExit())
        return status;
    const auto skipped = static_cast<unsigned>(counts().skipped.size());
    const unsigned passed = counts().run - counts().failed - skipped;
    if (counts().failed > 0)
        std::cout << surroundings();
    std::cout << passed << " passed, " << counts().failed << " failed, " << skipped << " skipped"
              << std::endl;
    return status == 0 && passed == 0 && skipped > 0 ? all_skipped : status;
}
