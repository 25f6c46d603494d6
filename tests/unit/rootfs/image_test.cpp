// What the JSON files of images say.

#include "rootfs/image.hpp"

#include <doctest/doctest.h>

using namespace nsbox;
using namespace nsbox::rootfs;

namespace {

const std::string one = "sha256:" + std::string(64, '1');
const std::string two = "sha256:" + std::string(64, '2');

std::string descriptor(const std::string& digest, const std::string& rest = "")
{
    return R"({"digest": ")" + digest + "\"" + rest + "}";
}

std::string platform(std::string_view machine)
{
    return R"(, "platform": {"os": "linux", "architecture": ")" + std::string{machine} + "\"}";
}

std::string named(const std::string& name)
{
    return R"(, "annotations": {"org.opencontainers.image.ref.name": ")" + name + "\"}";
}

std::string index_of(const std::string& text)
{
    return R"({"manifests": [)" + text + "]}";
}

}  // namespace

TEST_CASE("a blob's path has nothing in it but its digest")
{
    CHECK(blob_path(one).value() == "blobs/sha256/" + std::string(64, '1'));
    for (const std::string& bad : {std::string{}, std::string{"sha256:../../x"}, one + "1",
                                   "sha512:" + std::string(128, '1'), std::string(64, '1')})
        CHECK_FALSE(blob_path(bad));
}

TEST_CASE("an index gives the image of this machine")
{
    const std::string own{own_architecture()};
    const auto choose = [](const std::string& text, const std::string& wanted = "") {
        return choose_oci_image(index_of(text), wanted);
    };
    CHECK(choose(descriptor(one))->blob.digest == one);
    CHECK(choose(descriptor(one, platform("s390x")) + "," + descriptor(two, platform(own)))
              ->blob.digest == two);
    CHECK(choose(descriptor(one, platform("s390x"))).error().reason.find("linux/s390x") !=
          std::string::npos);
    CHECK(choose(descriptor(one, R"(, "platform": {"os": "unknown", "architecture": "unknown"})") +
                 "," + descriptor(two))
              ->blob.digest == two);
    const std::string both = descriptor(one, named("a")) + "," + descriptor(two, named("b"));
    CHECK(choose(both).error().reason == "the archive has several: \"a\", \"b\"");
    CHECK(choose(both, "b")->blob.digest == two);
    CHECK(choose(both, one)->blob.digest == one);
    CHECK(choose(both, "c").error().reason == "the archive has \"a\", \"b\"");
    CHECK(choose(descriptor(one, R"(, "mediaType": "application/vnd.oci.image.index.v1+json")"))
              ->is_index);
    for (const char* const bad : {"", "[]", "{}", R"({"manifests": []})", R"({"manifests": {}})",
                                  R"({"manifests": [1]})", R"({"manifests": [{"digest": 1}]})"})
        CHECK_FALSE(choose_oci_image(bad, ""));
}

TEST_CASE("a manifest has a configuration and layers")
{
    const std::string good =
        R"({"config": )" + descriptor(one) + R"(, "layers": [)" + descriptor(two) + "]}";
    const Result<ImageParts> parts = parse_oci_manifest(good);
    REQUIRE(parts);
    CHECK(parts->config.digest == one);
    REQUIRE(parts->layers.size() == 1);
    CHECK(parts->layers[0].digest == two);
    CHECK_FALSE(parse_oci_manifest(R"({"config": )" + descriptor(one) + R"(, "layers": []})"));
    CHECK_FALSE(parse_oci_manifest(R"({"config": )" + descriptor(one) + R"(, "layers": [{}]})"));
    CHECK_FALSE(parse_oci_manifest("{}"));
}

TEST_CASE("docker's manifest names files, and digests where the names are some")
{
    const std::string hex(64, '3');
    const std::string text = R"([{"Config": ")" + hex + R"(.json", "RepoTags": ["a:1", "a:2"],
        "Layers": ["x/layer.tar", "blobs/sha256/)" +
                             hex + R"("]},
        {"Config": "c", "RepoTags": null, "Layers": ["y"]}])";
    CHECK(choose_docker_image(text, "").error().reason ==
          "the archive has several: \"a:1\", \"a:2\", \"c\"");
    const Result<ImageParts> parts = choose_docker_image(text, "a:2");
    REQUIRE(parts);
    CHECK(parts->config.digest == "sha256:" + hex);
    CHECK(parts->layers.at(0).digest.empty());
    CHECK(parts->layers.at(1).digest == "sha256:" + hex);
    CHECK(choose_docker_image(text, "c")->config.path == "c");
    CHECK_FALSE(choose_docker_image(text, "d"));
    for (const char* const bad : {"", "{}", "[]", "[1]", R"([{"Config": "c"}])"})
        CHECK_FALSE(choose_docker_image(bad, ""));
}

TEST_CASE("an image's configuration is taken where it is of the right types")
{
    const Result<ImageConfig> config = parse_image_config(
        R"({"architecture": "amd64", "rootfs": {"diff_ids": ["d"]}, "config": {"Env": ["A=b", "bad",
        "=worse"], "Cmd": null, "Entrypoint": ["e"], "User": 5, "WorkingDir": "/w"}})");
    REQUIRE(config);
    CHECK(config->image.environment == std::vector<std::string>{"A=b"});
    CHECK(config->notes.size() == 2);
    CHECK(config->image.entrypoint == std::vector<std::string>{"e"});
    CHECK(config->image.command.empty());
    CHECK(config->image.user.empty());
    CHECK(config->image.working_directory == "/w");
    CHECK(config->diffs == std::vector<std::string>{"d"});
    CHECK(parse_image_config("{}"));
    CHECK_FALSE(parse_image_config("[]"));
    CHECK_FALSE(parse_image_config(std::string(100, '[') + std::string(100, ']')));
}
