#include "nsbox/nsbox.h"

#include "nsbox/document.hpp"
#include "nsbox/nsbox.hpp"
#include "nsbox/pool.hpp"
#include "sys/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

struct nsbox_error {
    nsbox::Error error;
    std::string operation;
    std::string message;
};

struct nsbox_command {
    nsbox::Command command;
};

/// A root filesystem that is in use: by a sandbox, or by a pool and what was taken from it.
using RootfsInUse = std::shared_ptr<const nsbox::Rootfs>;

struct nsbox_sandbox {
    // In this order: the root filesystem is in use until the sandbox has ended.
    RootfsInUse rootfs;
    nsbox::Sandbox sandbox;
    bool is_started = false;  ///< For one command...
    bool is_over = false;     ///< ...whose end somebody has seen.
};

struct nsbox_pool {
    RootfsInUse rootfs;
    nsbox::Pool pool;
};

struct nsbox_ports {
    std::vector<nsbox::PublishedPort> ports;
};

struct nsbox_process {
    nsbox::Process process;
};

struct nsbox_text {
    std::string text;
};

struct nsbox_outcome {
    nsbox::Outcome outcome;
};

namespace {

using nsbox::Result;

void put(nsbox::Error error, nsbox_error** place)
{
    if (place == nullptr)
        return;
    std::string operation{error.op.view()};
    std::string message = error.message();
    *place = new nsbox_error{std::move(error), std::move(operation), std::move(message)};
}

/// -1 or null, as the function has it.
template <class T>
T fail(nsbox::Error error, nsbox_error** place, T result)
{
    put(std::move(error), place);
    return result;
}

nsbox::Error no_object(const char* what)
{
    return nsbox::Error{EINVAL, "Can't use what is passed", what, {}, {}};
}

std::string_view bytes_of(const char* data, std::size_t size)
{
    return data == nullptr ? std::string_view{} : std::string_view{data, size};
}

int done(const Result<>& result, nsbox_error** error)
{
    return result ? 0 : fail(result.error(), error, -1);
}

void fill(const nsbox::ExitStatus& from, nsbox_status* to)
{
    if (to == nullptr)
        return;
    nsbox_status status{};
    status.size = to->size;
    status.code = from.code;
    status.signal = from.signal;
    status.reason = static_cast<std::int32_t>(from.reason);
    status.shell_code = from.shell_code();
    status.user_us = static_cast<std::uint64_t>(from.usage.user.count());
    status.system_us = static_cast<std::uint64_t>(from.usage.system.count());
    status.max_rss_kib = from.usage.max_rss_kib;
    status.oom_kills = from.oom_kills;
    // As much as the caller knows of.
    std::memcpy(to, &status, std::min(status.size, sizeof status));
}

nsbox::RunOptions options_of(const nsbox_run_options* from)
{
    nsbox::RunOptions options;
    if (from == nullptr)
        return options;
    nsbox_run_options known{};
    std::memcpy(&known, from, std::min(from->size, sizeof known));
    options.input = bytes_of(known.input, known.input_size);
    options.time = std::chrono::milliseconds{std::max<std::int64_t>(known.milliseconds, 0)};
    if (known.most > 0)
        options.most = known.most;
    return options;
}

nsbox_outcome* outcome_of(Result<nsbox::Outcome> outcome, nsbox_error** error)
{
    if (!outcome)
        return fail<nsbox_outcome*>(std::move(outcome.error()), error, nullptr);
    return new nsbox_outcome{std::move(*outcome)};
}

std::vector<std::string> words_of(const char* const* words, std::size_t count)
{
    std::vector<std::string> list;
    for (std::size_t i = 0; words != nullptr && i < count && words[i] != nullptr; ++i)
        list.emplace_back(words[i]);
    return list;
}

struct Wish {
    nsbox::Spec spec;
    RootfsInUse rootfs;
};

Result<Wish> wish_of(const char* document, std::size_t size)
{
    nsbox::Described described = TRY(nsbox::describe(bytes_of(document, size)));
    Wish wish{std::move(described.spec), nullptr};
    if (described.rootfs)
        wish.rootfs = std::make_shared<const nsbox::Rootfs>(std::move(*described.rootfs));
    return wish;
}

nsbox_sandbox* sandbox_of(Result<nsbox::Sandbox> sandbox, RootfsInUse rootfs, bool is_started,
                          nsbox_error** error)
{
    if (!sandbox)
        return fail<nsbox_sandbox*>(std::move(sandbox.error()), error, nullptr);
    return new nsbox_sandbox{std::move(rootfs), std::move(*sandbox), is_started};
}

Result<nsbox::PublishedPort> port_of(const nsbox_port* from)
{
    nsbox_port known{};
    if (from != nullptr)
        std::memcpy(&known, from, std::min(from->size, sizeof known));
    if (from == nullptr || known.kind < NSBOX_PORT_TCP || known.kind > NSBOX_PORT_HOST_SOCKET)
        return tl::make_unexpected(no_object("a port of some kind"));
    nsbox::PublishedPort port;
    port.kind = static_cast<nsbox::PublishedPort::Kind>(known.kind);
    port.outside = known.host_port;
    port.inside = known.port;
    port.address = known.address != nullptr ? known.address : "";
    port.path = known.path != nullptr ? known.path : "";
    port.to_loopback = known.to_loopback != 0;
    return port;
}

const char* text_of(const std::string& text, std::size_t* size)
{
    if (size != nullptr)
        *size = text.size();
    return text.c_str();
}

// The numbers of the header are those of the enumerations.
static_assert(static_cast<int>(nsbox::Reason::exited) == NSBOX_REASON_EXITED);
static_assert(static_cast<int>(nsbox::Reason::time_limit) == NSBOX_REASON_TIME_LIMIT);
static_assert(static_cast<int>(nsbox::Reason::cpu_limit) == NSBOX_REASON_CPU_LIMIT);
static_assert(static_cast<int>(nsbox::Reason::network_failed) == NSBOX_REASON_NETWORK_FAILED);
static_assert(static_cast<int>(nsbox::PublishedPort::Kind::tcp) == NSBOX_PORT_TCP);
static_assert(static_cast<int>(nsbox::PublishedPort::Kind::host_socket) == NSBOX_PORT_HOST_SOCKET);
static_assert(static_cast<int>(nsbox::Reason::out_of_memory) == NSBOX_REASON_OUT_OF_MEMORY);
static_assert(static_cast<int>(nsbox::Reason::sandbox_ended) == NSBOX_REASON_SANDBOX_ENDED);
static_assert(static_cast<int>(nsbox::Stream::Kind::inherit) == NSBOX_STREAM_INHERIT);
static_assert(static_cast<int>(nsbox::Stream::Kind::output) == NSBOX_STREAM_OUTPUT);

}  // namespace

const char* nsbox_version(void)
{
    return nsbox::version();
}

int nsbox_error_code(const nsbox_error* error)
{
    return error == nullptr ? 0 : error->error.err;
}

const char* nsbox_error_operation(const nsbox_error* error)
{
    return error == nullptr ? "" : error->operation.c_str();
}

const char* nsbox_error_object(const nsbox_error* error)
{
    return error == nullptr ? "" : error->error.object.c_str();
}

const char* nsbox_error_hint(const nsbox_error* error)
{
    return error == nullptr ? "" : error->error.hint.c_str();
}

const char* nsbox_error_message(const nsbox_error* error)
{
    return error == nullptr ? "" : error->message.c_str();
}

void nsbox_error_free(nsbox_error* error)
{
    delete error;
}

int nsbox_document_check(const char* document, size_t size, nsbox_error** error)
{
    const Result<nsbox::Document> read = nsbox::parse_document(bytes_of(document, size));
    return read ? 0 : fail(read.error(), error, -1);
}

nsbox_command* nsbox_command_new(const char* const* words, size_t count)
{
    auto* const command = new nsbox_command{};
    command->command.words = words_of(words, count);
    return command;
}

void nsbox_command_set_argv0(nsbox_command* command, const char* argv0)
{
    if (command != nullptr && argv0 != nullptr)
        command->command.argv0 = argv0;
}

void nsbox_command_set_patience(nsbox_command* command, int64_t milliseconds)
{
    if (command != nullptr)
        command->command.patience = std::chrono::milliseconds{milliseconds};
}

void nsbox_command_set_directory(nsbox_command* command, const char* directory)
{
    if (command != nullptr && directory != nullptr)
        command->command.directory = directory;
}

void nsbox_command_set_variable(nsbox_command* command, const char* name, const char* value)
{
    using Kind = nsbox::EnvironmentEdit::Kind;
    if (command != nullptr && name != nullptr)
        command->command.environment.push_back(
            {value != nullptr ? Kind::set : Kind::unset, name, value != nullptr ? value : ""});
}

int nsbox_command_set_stream(nsbox_command* command, int number, int kind, int descriptor)
{
    if (command == nullptr || number < 0 || number > 2 || kind < NSBOX_STREAM_INHERIT ||
        kind > NSBOX_STREAM_OUTPUT)
        return -1;
    nsbox::Command& it = command->command;
    nsbox::Stream& stream = number == 0 ? it.input : number == 1 ? it.output : it.error;
    stream = {static_cast<nsbox::Stream::Kind>(kind), descriptor};
    return 0;
}

void nsbox_command_set_terminal(nsbox_command* command, unsigned short rows, unsigned short columns)
{
    if (command != nullptr)
        command->command.terminal = nsbox::WindowSize{rows, columns};
}

void nsbox_command_add_descriptor(nsbox_command* command, int descriptor, int number)
{
    if (command != nullptr)
        command->command.descriptors.emplace_back(descriptor, number);
}

void nsbox_command_free(nsbox_command* command)
{
    delete command;
}

nsbox_sandbox* nsbox_sandbox_create(const char* document, size_t size, nsbox_error** error)
{
    Result<Wish> wish = wish_of(document, size);
    if (!wish)
        return fail<nsbox_sandbox*>(std::move(wish.error()), error, nullptr);
    return sandbox_of(nsbox::Sandbox::create(wish->spec), std::move(wish->rootfs), false, error);
}

nsbox_sandbox* nsbox_sandbox_start(const char* document, size_t size, nsbox_error** error)
{
    Result<Wish> wish = wish_of(document, size);
    if (!wish)
        return fail<nsbox_sandbox*>(std::move(wish.error()), error, nullptr);
    wish->spec.signals_command = true;
    return sandbox_of(nsbox::Sandbox::start(wish->spec), std::move(wish->rootfs), true, error);
}

int nsbox_sandbox_wait(nsbox_sandbox* sandbox, nsbox_status* status, nsbox_error** error)
{
    if (sandbox == nullptr)
        return fail(no_object("a sandbox"), error, -1);
    if (sandbox->is_over)
        return fail(nsbox::Error{ECHILD, "Can't wait for the command", {}, {}, {}}, error, -1);
    const Result<nsbox::ExitStatus> end = sandbox->sandbox.wait();
    if (!end)
        return fail(end.error(), error, -1);
    sandbox->is_over = true;
    fill(*end, status);
    return 0;
}

int nsbox_sandbox_signal(nsbox_sandbox* sandbox, int number, nsbox_error** error)
{
    if (sandbox == nullptr)
        return fail(no_object("a sandbox"), error, -1);
    return done(sandbox->sandbox.signal(number), error);
}

void nsbox_sandbox_kill(nsbox_sandbox* sandbox)
{
    if (sandbox == nullptr)
        return;
    sandbox->sandbox.kill();
    sandbox->is_over = true;
}

int nsbox_sandbox_reset(nsbox_sandbox* sandbox, nsbox_error** error)
{
    if (sandbox == nullptr)
        return fail(no_object("a sandbox"), error, -1);
    return done(sandbox->sandbox.reset(), error);
}

int nsbox_sandbox_pid(const nsbox_sandbox* sandbox)
{
    return sandbox == nullptr ? -1 : sandbox->sandbox.child_pid();
}

const char* nsbox_sandbox_note(const nsbox_sandbox* sandbox, size_t index)
{
    if (sandbox == nullptr || index >= sandbox->sandbox.notes().size())
        return nullptr;
    return sandbox->sandbox.notes()[index].c_str();
}

void nsbox_sandbox_close(nsbox_sandbox* sandbox)
{
    nsbox_sandbox_kill(sandbox);
}

void nsbox_sandbox_free(nsbox_sandbox* sandbox)
{
    if (sandbox != nullptr && sandbox->is_started && !sandbox->is_over)
        sandbox->sandbox.kill();
    delete sandbox;
}

int nsbox_sandbox_add_port(nsbox_sandbox* sandbox, const nsbox_port* port, uint16_t* host_port,
                           nsbox_error** error)
{
    if (sandbox == nullptr)
        return fail(no_object("a sandbox"), error, -1);
    const Result<nsbox::PublishedPort> wish = port_of(port);
    if (!wish)
        return fail(wish.error(), error, -1);
    const Result<nsbox::PublishedPort> added = sandbox->sandbox.add_port(*wish);
    if (!added)
        return fail(added.error(), error, -1);
    if (host_port != nullptr)
        *host_port = added->outside;
    return 0;
}

int nsbox_sandbox_remove_port(nsbox_sandbox* sandbox, const nsbox_port* port, nsbox_error** error)
{
    if (sandbox == nullptr)
        return fail(no_object("a sandbox"), error, -1);
    const Result<nsbox::PublishedPort> wish = port_of(port);
    return wish ? done(sandbox->sandbox.remove_port(*wish), error) : fail(wish.error(), error, -1);
}

nsbox_ports* nsbox_sandbox_ports(const nsbox_sandbox* sandbox)
{
    return sandbox == nullptr ? nullptr : new nsbox_ports{sandbox->sandbox.ports()};
}

size_t nsbox_ports_count(const nsbox_ports* ports)
{
    return ports == nullptr ? 0 : ports->ports.size();
}

int nsbox_ports_get(const nsbox_ports* ports, size_t index, nsbox_port* port)
{
    if (ports == nullptr || port == nullptr || index >= ports->ports.size())
        return -1;
    const nsbox::PublishedPort& from = ports->ports[index];
    const nsbox_port known{port->size,
                           static_cast<std::int32_t>(from.kind),
                           from.outside,
                           from.inside,
                           from.address.c_str(),
                           from.path.c_str(),
                           from.to_loopback ? 1 : 0};
    std::memcpy(port, &known, std::min(port->size, sizeof known));
    return 0;
}

void nsbox_ports_free(nsbox_ports* ports)
{
    delete ports;
}

nsbox_pool* nsbox_pool_new(const char* document, size_t size, size_t count, int has_thread,
                           nsbox_error** error)
{
    Result<Wish> wish = wish_of(document, size);
    if (!wish)
        return fail<nsbox_pool*>(std::move(wish.error()), error, nullptr);
    Result<nsbox::Pool> pool = nsbox::Pool::create(wish->spec, {count, has_thread != 0});
    if (!pool)
        return fail<nsbox_pool*>(std::move(pool.error()), error, nullptr);
    return new nsbox_pool{std::move(wish->rootfs), std::move(*pool)};
}

nsbox_sandbox* nsbox_pool_take(nsbox_pool* pool, nsbox_error** error)
{
    if (pool == nullptr)
        return fail<nsbox_sandbox*>(no_object("a pool"), error, nullptr);
    return sandbox_of(pool->pool.take(), pool->rootfs, false, error);
}

int nsbox_pool_refill(nsbox_pool* pool, nsbox_error** error)
{
    if (pool == nullptr)
        return fail(no_object("a pool"), error, -1);
    return done(pool->pool.refill(), error);
}

size_t nsbox_pool_ready(const nsbox_pool* pool)
{
    return pool == nullptr ? 0 : pool->pool.ready();
}

int nsbox_pool_descriptor(const nsbox_pool* pool)
{
    return pool == nullptr ? -1 : pool->pool.descriptor();
}

void nsbox_pool_free(nsbox_pool* pool)
{
    delete pool;
}

nsbox_process* nsbox_spawn(const nsbox_sandbox* sandbox, const nsbox_command* command,
                           nsbox_error** error)
{
    if (sandbox == nullptr || command == nullptr)
        return fail<nsbox_process*>(no_object("a sandbox and a command"), error, nullptr);
    Result<nsbox::Process> process = sandbox->sandbox.spawn(command->command);
    if (!process)
        return fail<nsbox_process*>(std::move(process.error()), error, nullptr);
    return new nsbox_process{std::move(*process)};
}

int nsbox_write_file(const nsbox_sandbox* sandbox, const char* path, const void* content,
                     size_t size, unsigned mode, nsbox_error** error)
{
    if (sandbox == nullptr || path == nullptr)
        return fail(no_object("a sandbox and a path"), error, -1);
    return done(
        sandbox->sandbox.write_file(path, bytes_of(static_cast<const char*>(content), size), mode),
        error);
}

nsbox_text* nsbox_read_file(const nsbox_sandbox* sandbox, const char* path, size_t most,
                            nsbox_error** error)
{
    if (sandbox == nullptr || path == nullptr)
        return fail<nsbox_text*>(no_object("a sandbox and a path"), error, nullptr);
    Result<std::string> text = sandbox->sandbox.read_file(path, most);
    if (!text)
        return fail<nsbox_text*>(std::move(text.error()), error, nullptr);
    return new nsbox_text{std::move(*text)};
}

const char* nsbox_text_data(const nsbox_text* text)
{
    return text == nullptr ? "" : text->text.c_str();
}

size_t nsbox_text_size(const nsbox_text* text)
{
    return text == nullptr ? 0 : text->text.size();
}

void nsbox_text_free(nsbox_text* text)
{
    delete text;
}

int nsbox_process_wait(nsbox_process* process, int64_t milliseconds, nsbox_status* status,
                       nsbox_error** error)
{
    if (process == nullptr)
        return fail(no_object("a process"), error, -1);
    if (milliseconds < 0) {
        const Result<nsbox::ExitStatus> end = process->process.wait();
        if (!end)
            return fail(end.error(), error, -1);
        fill(*end, status);
        return 1;
    }
    const Result<std::optional<nsbox::ExitStatus>> end =
        process->process.wait_for(std::chrono::milliseconds{milliseconds});
    if (!end)
        return fail(end.error(), error, -1);
    if (!end->has_value())
        return 0;
    fill(**end, status);
    return 1;
}

int nsbox_process_descriptor(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.descriptor();
}

int nsbox_process_pidfd(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.pidfd();
}

int nsbox_process_pid(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.pid();
}

int nsbox_process_input(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.input();
}

int nsbox_process_output(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.output();
}

int nsbox_process_error(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.error();
}

int nsbox_process_terminal(const nsbox_process* process)
{
    return process == nullptr ? -1 : process->process.terminal();
}

void nsbox_process_close_input(nsbox_process* process)
{
    if (process != nullptr)
        process->process.close_input();
}

int nsbox_process_signal(const nsbox_process* process, int number, nsbox_error** error)
{
    if (process == nullptr)
        return fail(no_object("a process"), error, -1);
    return done(process->process.signal(number), error);
}

int nsbox_process_kill(const nsbox_process* process, nsbox_error** error)
{
    if (process == nullptr)
        return fail(no_object("a process"), error, -1);
    return done(process->process.kill(), error);
}

int nsbox_process_resize(const nsbox_process* process, unsigned short rows, unsigned short columns,
                         nsbox_error** error)
{
    if (process == nullptr)
        return fail(no_object("a process"), error, -1);
    return done(process->process.resize({rows, columns}), error);
}

void nsbox_process_free(nsbox_process* process)
{
    delete process;
}

nsbox_outcome* nsbox_run(const char* document, size_t size, const nsbox_command* command,
                         const nsbox_run_options* options, nsbox_error** error)
{
    if (command == nullptr)
        return fail<nsbox_outcome*>(no_object("a command"), error, nullptr);
    const Result<Wish> wish = wish_of(document, size);
    if (!wish)
        return fail<nsbox_outcome*>(wish.error(), error, nullptr);
    return outcome_of(nsbox::run(wish->spec, command->command, options_of(options)), error);
}

nsbox_outcome* nsbox_run_script(const char* document, size_t size, const char* text,
                                size_t text_size, const nsbox_command* command,
                                const char* const* arguments, size_t count,
                                const nsbox_run_options* options, nsbox_error** error)
{
    if (command == nullptr)
        return fail<nsbox_outcome*>(no_object("a command"), error, nullptr);
    const Result<Wish> wish = wish_of(document, size);
    if (!wish)
        return fail<nsbox_outcome*>(wish.error(), error, nullptr);
    return outcome_of(nsbox::run_script(wish->spec, std::string{bytes_of(text, text_size)},
                                        command->command, words_of(arguments, count),
                                        options_of(options)),
                      error);
}

nsbox_outcome* nsbox_run_in(nsbox_sandbox* sandbox, const nsbox_command* command,
                            const nsbox_run_options* options, nsbox_error** error)
{
    if (sandbox == nullptr || command == nullptr)
        return fail<nsbox_outcome*>(no_object("a sandbox and a command"), error, nullptr);
    return outcome_of(nsbox::run(sandbox->sandbox, command->command, options_of(options)), error);
}

int nsbox_outcome_status(const nsbox_outcome* outcome, nsbox_status* status)
{
    if (outcome == nullptr)
        return -1;
    fill(outcome->outcome.status, status);
    return 0;
}

const char* nsbox_outcome_output(const nsbox_outcome* outcome, size_t* size)
{
    static const std::string none;
    return text_of(outcome == nullptr ? none : outcome->outcome.output, size);
}

const char* nsbox_outcome_error(const nsbox_outcome* outcome, size_t* size)
{
    static const std::string none;
    return text_of(outcome == nullptr ? none : outcome->outcome.error, size);
}

int nsbox_outcome_is_cut(const nsbox_outcome* outcome)
{
    return outcome != nullptr && outcome->outcome.is_cut ? 1 : 0;
}

void nsbox_outcome_free(nsbox_outcome* outcome)
{
    delete outcome;
}
