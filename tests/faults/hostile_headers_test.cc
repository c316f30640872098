// F41: headers that claim what cannot be. Each must be refused at once and without the memory that it asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/workers/thread_cpu.h"
#include "tessera/checkpoint/convert/safetensors.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/safetensors_header.h"
#include "tessera/checkpoint/strategy/group_file.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tests/fuzz/memory_peak.h"

namespace tessera::checkpoint::faults {
namespace {

constexpr int64_t kMaxMemoryBytes = 16 << 20;
// Of the processor's time: enough to touch so much memory for the first time on a slow machine, not for what is
// claimed.
constexpr double kMaxSeconds = 1;

double processor_seconds() { return static_cast<double>(thread_cpu_ns()) * 1e-9; }

void expect_refused(const std::string& what, const std::function<void()>& read) {
  SCOPED_TRACE(what);
  fuzz::reset_memory_peak();
  const double start = processor_seconds();
  EXPECT_THROW(read(), InvalidArgument);
  EXPECT_LT(processor_seconds() - start, kMaxSeconds);
  EXPECT_LT(fuzz::memory_peak_bytes(), kMaxMemoryBytes);
}

std::string wire_value(const std::string& name, const std::string& tensor) {
  std::string value;
  append_bytes_field(value, 1, name);
  append_bytes_field(value, 2, tensor);
  std::string record;
  append_bytes_field(record, 1, value);
  return record;
}

std::string wire_tensor(const std::vector<int64_t>& dims, const std::string& content,
                        const std::string& type = "Float32") {
  std::string tensor;
  for (const int64_t dim : dims) append_number_field(tensor, 1, dim);
  append_bytes_field(tensor, 2, type);
  append_bytes_field(tensor, 3, content);
  return tensor;
}

// A length-delimited field that ends before its length says.
std::string cut_field(int field, uint64_t length) {
  std::string bytes(1, static_cast<char>(field << 3 | 2));
  append_varint(bytes, length);
  return bytes;
}

constexpr uint64_t kHuge[] = {uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX};

TEST(HeaderBombs, F41_CkptFiles) {
  const auto read = [](const std::string& bytes) {
    return [bytes] {
      MemoryFileSystem files;
      files.create("f.ckpt")->append(bytes);
      CkptFile::open(files, "f.ckpt");
    };
  };
  for (const uint64_t length : kHuge) {
    expect_refused("record", read(cut_field(1, length)));
    std::string value;
    append_bytes_field(value, 1, "w");
    std::string record;
    append_bytes_field(record, 1, value + cut_field(2, length));
    expect_refused("tensor", read(record));
    expect_refused("content", read(wire_value("w", wire_tensor({4}, "").substr(0, 11) + cut_field(3, length))));
  }
  const int64_t big = int64_t{1} << 62;
  for (const auto& dims : std::vector<std::vector<int64_t>>{{big, big},
                                                            {INT64_MAX},
                                                            {INT64_MAX, 2},
                                                            {int64_t{1} << 31, int64_t{1} << 31},
                                                            {-1},
                                                            {INT64_MIN},
                                                            {2, -4},
                                                            {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                                            {5}}) {
    expect_refused("dims", read(wire_value("w", wire_tensor(dims, std::string(16, 'x')))));
  }
  expect_refused("a name twice",
                 read(wire_value("w", wire_tensor({1}, "1234")) + wire_value("w", wire_tensor({1}, "1234"))));
  expect_refused("a name too long", read(wire_value(std::string(70'000, 'n'), wire_tensor({1}, "1234"))));
}

std::string framed(const std::string& body) {
  const auto crc = crc32c(std::as_bytes(std::span(body.data(), body.size())));
  return fmt::format("{{\"crc32c\":\"{:08x}\",\"manifest\":\n{}\n}}\n", crc, body);
}

std::string deep(char open, size_t depth) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open == '{' ? "{\"a\":" : "[";
  return text;
}

constexpr size_t kDeep = 1'000'000;

TEST(HeaderBombs, F41_Json) {
  for (const char open : {'[', '{'}) {
    const auto text = deep(open, kDeep);
    const auto manifest = framed(text);
    expect_refused("manifest", [&] { parse_manifest(manifest, "m"); });
    const auto strategy = "{\"parallel_layout_item\":" + text;
    expect_refused("strategy", [&] { parse_strategy_file(strategy, "s.json"); });
  }
}

TEST(HeaderBombs, F41_Manifests) {
  Manifest good;
  good.files.push_back({.name = "f.ckpt", .size_bytes = 8});
  good.tensors.push_back({.name = "w", .shape = {2}, .slices = {{.offset = {0}, .shape = {2}, .size_bytes = 8}}});
  const auto text = to_text(good);
  const auto body = text.substr(33, text.size() - 36);
  const auto with = [&](const std::string& from, const std::string& to) {
    auto edited = body;
    const auto at = edited.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    edited.replace(at, from.size(), to);
    return [edited] { parse_manifest(framed(edited), "m"); };
  };
  EXPECT_NO_THROW(parse_manifest(framed(body), "m"));
  for (const char* shape : {"[9223372036854775807,9223372036854775807]", "[-2]", "[NaN]", "[2.5]", "[1e400]",
                            "[18446744073709551616]", "[\"2\"]", "[1,1,1,1,1,1,1,1,2]", "[[2]]", "null"}) {
    expect_refused(shape, with("\"shape\":[2]", fmt::format("\"shape\":{}", shape)));
  }
  expect_refused("outside", with("\"offset\":[0]", "\"offset\":[1]"));
  expect_refused("beyond int64", with("\"offset\":[0]", "\"offset\":[9223372036854775807]"));
  expect_refused("file", with("\"file\":0", "\"file\":2147483647"));
  expect_refused("size", with("\"size_bytes\":8,\"crc32c\":\"00000000\"}]}",
                              "\"size_bytes\":9223372036854775807,\"crc32c\":\"00000000\"}]}"));
  expect_refused("a member twice", with("\"epoch\":0", "\"epoch\":0,\"epoch\":0"));
}

TEST(HeaderBombs, F41_Safetensors) {
  const auto read = [](uint64_t length, const std::string& header, size_t data = 0) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += header + std::string(data, 'x');
    return [bytes] {
      MemoryFileSystem files;
      files.create("f.safetensors")->append(bytes);
      read_safetensors_header(files, "f.safetensors");
    };
  };
  for (const uint64_t length : kHuge) expect_refused("length", read(length, "{}"));
  const auto nested = deep('[', kDeep);
  expect_refused("nesting", read(nested.size(), nested));
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"w":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape, offsets);
  };
  const auto refuse = [&](const std::string& header) { expect_refused(header, read(header.size(), header, 8)); };
  EXPECT_NO_THROW(read(tensor("[2]", "[0,8]").size(), tensor("[2]", "[0,8]"), 8)());
  refuse(tensor("[4611686018427387904,4]", "[0,8]"));
  refuse(tensor("[-2]", "[0,8]"));
  refuse(tensor("[NaN]", "[0,8]"));
  refuse(tensor("[2]", "[0,18446744073709551615]"));
  refuse(tensor("[2]", "[8,0]"));
  refuse(tensor("[1]", "[4,8]"));  // a hole
  refuse(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})");
  refuse(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})");
}

TEST(HeaderBombs, F41_StrategyAndGroupFiles) {
  for (const uint64_t length : kHuge) {
    for (const int field : {1, 2, 3}) {
      const auto bytes = cut_field(field, length);
      expect_refused("strategy", [&] { parse_strategy_file(bytes, "s"); });
      expect_refused("group", [&] { parse_group_file(bytes, "g"); });
    }
  }
  std::string packed;  // a thousand million ranks in five bytes
  append_bytes_field(packed, 2, cut_field(1, 1'000'000'000));
  expect_refused("ranks", [&] { parse_group_file(packed, "g"); });
}

TEST(HeaderBombs, F41_EncryptedFiles) {
  const std::string key = "0123456789abcdef";
  for (const uint32_t size : {0x7FFFFFFFU, 0xFFFFFFFFU, 0x80000000U, 17U}) {
    std::string bytes("\xD9\x5E\x3A\x7F", 4);
    for (const uint32_t word : {size + 24, 16U}) bytes.append(reinterpret_cast<const char*>(&word), 4);
    bytes += std::string(16, 'i');
    bytes.append(reinterpret_cast<const char*>(&size), 4);
    bytes += std::string(16, 'c');
    expect_refused("block", [&] {
      decrypt(std::as_bytes(std::span(bytes.data(), bytes.size())), "f", {.key = key, .mode = "AES-CBC"});
    });
  }
}

}  // namespace
}  // namespace tessera::checkpoint::faults
