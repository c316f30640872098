#include "tessera/checkpoint/manifest/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"

namespace tessera::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

Manifest example() {
  Manifest manifest;
  manifest.info = {.epoch = 2,
                   .step_in_epoch = 73,
                   .step = 146,
                   .saved_at_ms = 1700000000123,
                   .job_id = "job-7",
                   .job_name = "pictures, third try",
                   .training_id = "7e55e7a",
                   .world_size = 4,
                   .network_name = "resnet50",
                   .network_hash = "1-00ff",
                   .network_operators = "add 2, relu 1",
                   .optimizer = "Momentum",
                   .seed = ~uint64_t{0},
                   .random_state = "{\"calls\":[1,2]}",
                   .data_position = "epoch 2\nrow \"9\"",
                   .rows_per_batch = 64};
  manifest.files = {{.name = "CKP-2_73.ckpt", .size_bytes = 100, .crc32c = 0x8A9136AA}};
  manifest.tensors = {
      {.name = "fc.weight",
       .dtype = DType::kBF16,
       .shape = {4, 3},
       .slices = {{.offset = {2, 0}, .shape = {2, 3}, .size_bytes = 12, .crc32c = 7, .hash = 0x1F}}},
      {.name = "h\xC3\xA9", .is_text = true, .appended = true, .slices = {{.size_bytes = 8, .crc32c = 1}}}};
  return manifest;
}

// The body under a right checksum, so that only its content can be at fault.
std::string seal(const std::string& body) {
  return fmt::format("{{\"crc32c\":\"{:08x}\",\"manifest\":\n{}\n}}\n", crc32c(std::as_bytes(std::span(body))), body);
}

// The example's body with one text replaced.
std::string edited(const std::string& from, const std::string& to) {
  const auto text = to_text(example());
  const auto start = text.find('\n') + 1;
  auto body = text.substr(start, text.size() - start - 3);
  const auto at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return seal(body.replace(at, from.size(), to));
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "m");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Manifest, RoundTrips) { EXPECT_EQ(parse_manifest(to_text(example()), "m"), example()); }

TEST(Manifest, IsTheDocumentedText) {
  EXPECT_EQ(to_text(example()).substr(33), R"({
"format":"tessera checkpoint manifest",
"version":2,
"epoch":2,
"step_in_epoch":73,
"step":146,
"saved_at_ms":1700000000123,
"job_id":"job-7",
"job_name":"pictures, third try",
"training_id":"7e55e7a",
"world_size":4,
"network":{"name":"resnet50","hash":"1-00ff","operators":"add 2, relu 1"},
"optimizer":{"name":"Momentum"},
"random":{"seed":18446744073709551615,"state":"{\"calls\":[1,2]}"},
"data_position":"epoch 2\nrow \"9\"",
"rows_per_batch":64,
"files":[
{"name":"CKP-2_73.ckpt","size_bytes":100,"crc32c":"8a9136aa"}],
"tensors":[
{"name":"fc.weight","dtype":"bf16","shape":[4,3],"slices":[{"file":0,"offset":[2,0],"shape":[2,3],"size_bytes":12,"crc32c":"00000007","hash":"000000000000001f"}]},
{"name":"hé","dtype":"str","appended":true,"slices":[{"file":0,"offset":[],"shape":[],"size_bytes":8,"crc32c":"00000001"}]}]}
}
)");
}

TEST(Manifest, NeedsNoRowsPerBatch) {
  EXPECT_EQ(parse_manifest(edited(",\n\"rows_per_batch\":64", ""), "m").info.rows_per_batch, 0);
  EXPECT_THAT(refusal(edited(":64,", ":-64,")), testing::HasSubstr("rows_per_batch"));
}

TEST(Manifest, NeedsNoHashes) {
  auto manifest = parse_manifest(edited(",\"hash\":\"000000000000001f\"", ""), "m");
  EXPECT_FALSE(manifest.tensors[0].slices[0].hash.has_value());
  manifest.tensors[0].slices[0].hash = 0x1F;
  EXPECT_EQ(manifest, example());
}

TEST(Manifest, OfTheFirstVersionIsRead) {
  auto manifest = example();
  manifest.info.training_id.clear();
  manifest.info.network_operators.clear();
  manifest.info.optimizer.clear();
  manifest.files[0].encryption = "AES-GCM";
  auto text = to_text(manifest);
  const auto start = text.find('\n') + 1;
  auto body = text.substr(start, text.size() - start - 3);
  body.replace(body.find("\"version\":2"), 11, "\"version\":1");
  manifest.files[0].encryption = "AES-GCM/reference";  // the only form of the time
  EXPECT_EQ(parse_manifest(seal(body), "m"), manifest);
}

TEST(Manifest, HasRoomForStagesAndGenerations) {
  auto manifest = example();
  manifest.info.stage = CheckpointInfo::Stage{1, 4};
  manifest.info.generation = 7;
  EXPECT_THAT(to_text(manifest), HasSubstr("\"stage\":{\"index\":1,\"count\":4},\n\"generation\":7,"));
  EXPECT_EQ(parse_manifest(to_text(manifest), "m"), manifest);
  EXPECT_THAT(refusal(edited("\"world_size\":4", "\"world_size\":4,\"stage\":{\"index\":2,\"count\":2}")),
              HasSubstr("stage.index must be less than the count, got 2"));
}

TEST(Manifest, OfAClockBefore1970IsRead) {
  auto manifest = example();
  for (const int64_t time : {int64_t{-1}, int64_t{-86'400'000}, INT64_MIN}) {
    manifest.info.saved_at_ms = time;
    EXPECT_EQ(parse_manifest(to_text(manifest), "m"), manifest) << time;
  }
}

TEST(Manifest, MayHaveAValueWithAnEmptyName) {
  auto manifest = example();
  manifest.tensors[0].name.clear();
  EXPECT_EQ(parse_manifest(to_text(manifest), "m"), manifest);
}

TEST(Manifest, EveryBitFlipIsDetected) {
  const auto text = to_text(example());
  for (size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      ASSERT_THAT(refusal(damaged), StartsWith("m: ")) << "byte " << at << " bit " << bit;
    }
  }
}

TEST(Manifest, EveryTruncationIsDetected) {
  const auto text = to_text(example());
  for (size_t size = 0; size < text.size(); ++size) ASSERT_THAT(refusal(text.substr(0, size)), StartsWith("m: "));
}

TEST(Manifest, ErrorsNameTheField) {
  EXPECT_EQ(refusal(edited("\"epoch\":2", "\"epoch\":-2")),
            "m: epoch must be an integer from 0 to 9223372036854775807, got -2");
  EXPECT_EQ(refusal(edited("\"epoch\":2,", "")), "m: epoch is missing");
  EXPECT_EQ(refusal(edited("\"hash\":\"1-00ff\"", "\"hash\":[1]")), "m: network.hash must be a string, got [1]");
  EXPECT_EQ(refusal(edited("\"step\":146", "\"step\":1.5")),
            "m: step must be an integer from 0 to 9223372036854775807, got 1.5");
  EXPECT_THAT(refusal(edited("\"seed\":1", "\"seed\":-1")), HasSubstr("random.seed must be an integer"));
  EXPECT_THAT(refusal(edited("\"seed\":1", "\"seed\":9")), HasSubstr("random.seed must be an integer")) << "over 2^64";
  EXPECT_THAT(refusal(edited("\"version\":2", "\"version\":3")), HasSubstr("version must be 1 to 2, got 3"));
  EXPECT_THAT(refusal(edited("8a9136aa", "8A9136AA")), HasSubstr("files[0].crc32c must be eight lower-case hex"));
  EXPECT_THAT(refusal(edited("000000000000001f", "1f")),
              HasSubstr("tensors[0].slices[0].hash must be sixteen lower-case hexadecimal digits, got \"1f\""));
  EXPECT_THAT(refusal(edited("\"size_bytes\":12", "\"size_bytes\":13")),
              HasSubstr("tensors[0].slices[0].size_bytes must be the size of bf16[2,3], got 13"));
  EXPECT_THAT(refusal(edited("\"file\":0", "\"file\":1")), HasSubstr("tensors[0].slices[0].file must be the index"));
  EXPECT_THAT(refusal(edited("\"offset\":[2,0]", "\"offset\":[3,0]")),
              HasSubstr("tensors[0].slices[0] must lie inside the tensor's shape [4,3]"));
  EXPECT_THAT(refusal(edited("\"offset\":[2,0]", "\"offset\":[2]")), HasSubstr("offset must have 2 elements"));
  EXPECT_THAT(refusal(edited("\"offset\":[2,0]", "\"offset\":[9223372036854775807,0]")), HasSubstr("must lie inside"));
  EXPECT_THAT(refusal(edited("bf16", "bf17")), HasSubstr("tensors[0].dtype must be a dtype, got \"bf17\""));
  EXPECT_THAT(refusal(edited("\"shape\":[4,3]", "\"shape\":[4,-3]")), HasSubstr("tensors[0].shape[1] must be"));
  EXPECT_THAT(refusal(edited("\"shape\":[4,3]", "\"shape\":[4,4611686018427387904]")), HasSubstr("more bytes than"));
  EXPECT_THAT(refusal(edited("\"shape\":[4,3]", "\"shape\":[1,1,1,1,1,1,1,1,1]")),
              HasSubstr("has 9 elements, at most 8"));
  EXPECT_THAT(refusal(edited("hé", "fc.weight")), HasSubstr("tensors[1].name must occur once"));
  EXPECT_THAT(refusal(edited("\"step\":146", "\"step\":146,\"step\":146")), HasSubstr("\"step\" occurs twice"));
}

TEST(Manifest, FilesMustLieBesideIt) {
  for (const char* name : {"../x.ckpt", "/etc/passwd", "..", ".", "", "a/b", "a\\u0000b"}) {
    EXPECT_THAT(refusal(edited("CKP-2_73.ckpt", name)), HasSubstr("files[0].name must be the plain name")) << name;
  }
}

TEST(Manifest, SlicesOfSeveralFilesHoldTheWhole) {
  const auto read_with = [](const std::vector<ManifestSlice>& slices) {
    Manifest manifest = example();
    manifest.files.push_back({.name = "CKP-2_73.ckpt.rank_1", .size_bytes = 100});
    manifest.tensors[0].slices = slices;
    return refusal(to_text(manifest));
  };
  const ManifestSlice upper{.offset = {0, 0}, .shape = {2, 3}, .size_bytes = 12};
  const ManifestSlice lower{.file = 1, .offset = {2, 0}, .shape = {2, 3}, .size_bytes = 12};
  EXPECT_EQ(read_with({upper, lower}), "no error");
  EXPECT_THAT(read_with({upper}),
              HasSubstr("tensors[0].slices must hold each element of the shape once, 12 bytes of it "
                        "are missing"));
  EXPECT_THAT(read_with({}), HasSubstr("24 bytes of it are missing"));
  EXPECT_THAT(read_with({upper, lower, upper}), HasSubstr("tensors[0].slices must hold each element of the shape once, "
                                                          "and hold more"));
}

TEST(Manifest, HostileTextsAreRefused) {
  EXPECT_THAT(refusal(seal(std::string(1'000'000, '['))), HasSubstr("m: nested deeper than 8 levels"));
  EXPECT_THAT(refusal(seal("{\"format\":")), HasSubstr("m: not JSON"));
  EXPECT_THAT(refusal(seal("[]")), HasSubstr("m: the manifest must be an object, got []"));
  EXPECT_THAT(refusal(std::string((64 << 20) + 1, ' ')), HasSubstr("a manifest has at most"));
  EXPECT_THAT(refusal("{}"), HasSubstr("is no manifest"));
}

TEST(Manifest, AFileThatIsTooLargeIsRefusedUnread) {
  auto& files = FileSystem::local();
  const auto path = join_path(testing::TempDir(), fmt::format("tessera-large-{}.ckpt.manifest", ::getpid()));
  files.create(path)->append(to_text(example()));
  EXPECT_EQ(read_manifest(files, path), example());
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // no block of it is on the disk
  EXPECT_THAT([&] { read_manifest(files, path); },
              ThrowsMessage<InvalidArgument>(AllOf(StartsWith("manifest \"" + path + "\": has 1"),
                                                   HasSubstr("at most 64"), HasSubstr("take another checkpoint"))));
  files.remove(path);
}

TEST(Manifest, ALinkIsRefusedThoughItsDirectoryMayBeOne) {
  auto& files = FileSystem::local();
  const auto folder = join_path(testing::TempDir(), fmt::format("tessera-links-{}", ::getpid()));
  const auto in = [&](const std::string& name) { return join_path(folder, name); };
  files.create_directories(in("d"));
  files.create(in("d/a.ckpt.manifest"))->append(to_text(example()));
  std::filesystem::create_symlink(in("d"), in("linked"));
  EXPECT_EQ(read_manifest(files, in("linked/a.ckpt.manifest")), example());
  for (const char* target : {"d/a.ckpt.manifest", "d/../d/a.ckpt.manifest"}) {
    std::filesystem::create_symlink(in(target), in("a.ckpt.manifest"));
    EXPECT_THAT([&] { read_manifest(files, in("a.ckpt.manifest")); },
                ThrowsMessage<InvalidArgument>(AllOf(StartsWith(in("a.ckpt.manifest") + ": is a link to "),
                                                     HasSubstr("a manifest is a file beside its checkpoint"))));
    files.remove(in("a.ckpt.manifest"));
  }
  for (const char* target : {"/no/such/file", "a.ckpt.manifest"}) {  // the second leads to itself
    std::filesystem::create_symlink(target, in("a.ckpt.manifest"));
    EXPECT_THAT(
        [&] { read_manifest(files, in("a.ckpt.manifest")); },
        ThrowsMessage<InvalidArgument>(StartsWith(in("a.ckpt.manifest") + ": is a link that leads to nothing")));
    files.remove(in("a.ckpt.manifest"));
  }
  std::filesystem::create_symlink("a.ckpt.manifest", in("d/b.ckpt.manifest"));
  EXPECT_THROW(read_manifest(files, in("d/b.ckpt.manifest")), InvalidArgument) << "nor one to a file beside it";
  files.remove_directory_tree(folder);
}

TEST(Manifest, TextsMustBeUtf8) {
  auto manifest = example();
  manifest.info.data_position = "\xFF";
  EXPECT_THROW(to_text(manifest), InvalidArgument);
}

}  // namespace
}  // namespace tessera::checkpoint
