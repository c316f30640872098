#include "tessera/checkpoint/format/ckpt_assembly.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

Tensor counting(int64_t count) {
  Tensor tensor(DType::kI32, {count});
  for (int64_t i = 0; i < count; ++i) tensor.values<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  return tensor;
}

TEST(CkptAssembly, WritesTheWritersBytesInAnyOrder) {
  MemoryFileSystem files;
  const std::vector<Tensor> tensors = {counting(5), counting(100'000), counting(3)};
  // Records of 100 bytes: contents are cut into many, in places where no write ends.
  for (const int64_t record_bytes : {kMaxRecordBytes, int64_t{100}}) {
    const auto one = files.create("writer.ckpt");
    CkptWriter writer(*one, {.max_record_bytes = record_bytes});
    std::vector<CkptAssembly::Value> values;
    std::vector<Written> written;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto name = fmt::format("t{}", i);
      written.push_back(writer.add(Entry(name, tensors[i])));
      values.push_back({name, "Int32", tensors[i].shape(), tensors[i].view().size_bytes()});
    }
    values.insert(values.begin() + 1, {.name = "empty", .type_name = "Int32", .dims = {0}, .has_record = false});
    writer.finish();

    const auto other = files.create("assembly.ckpt");
    CkptAssembly assembly(*other, values, record_bytes);
    EXPECT_EQ(assembly.size_bytes(), writer.size_bytes());
    std::vector<std::span<const std::byte>> left;
    for (const auto& tensor : tensors) left.push_back(tensor.bytes());
    for (bool wrote = true; wrote;) {  // in turn, last value first
      wrote = false;
      for (size_t i = tensors.size(); i-- > 0;) {
        if (left[i].empty()) continue;
        const auto part = left[i].first(std::min<size_t>(left[i].size(), 70'000));
        assembly.write(i == 0 ? 0 : i + 1, part);
        left[i] = left[i].subspan(part.size());
        wrote = true;
      }
    }
    EXPECT_EQ(files.read_text("assembly.ckpt"), files.read_text("writer.ckpt"));
    EXPECT_EQ(assembly.crc32c(), writer.crc32c());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(assembly.written(i == 0 ? 0 : i + 1).crc32c, written[i].crc32c) << i;
    }
  }
}

TEST(CkptAssembly, NothingWrittenOfACompleteValueLeavesTheFileAsItIs) {
  MemoryFileSystem files;
  const auto file = files.create("x");
  CkptAssembly assembly(*file, {{.name = "none", .type_name = "Int32", .dims = {0}, .has_record = false},
                                {.name = "text", .type_name = "str", .dims = {}},
                                {.name = "one", .type_name = "Int32", .dims = {1}, .size_bytes = 4}});
  for (const size_t value : {2, 1, 0}) {
    assembly.write(value, value == 2 ? counting(1).bytes() : std::span<const std::byte>());
    const std::string once = files.read_text("x");
    assembly.write(value, {});
    EXPECT_EQ(files.read_text("x"), once) << value;
  }
  EXPECT_EQ(files.size_bytes("x"), assembly.size_bytes());
  const std::string whole = files.read_text("x");
  EXPECT_EQ(assembly.crc32c(), crc32c(std::as_bytes(std::span(whole))));
}

TEST(CkptAssembly, RefusesNamesThatAFileCannotHave) {
  MemoryFileSystem files;
  const auto file = files.create("f");
  const auto refusal = [&](const std::string& first, const std::string& second) {
    return message_of([&] { CkptAssembly(*file, {{first, "Int32", {1}, 4}, {second, "Int32", {1}, 4}}); });
  };
  EXPECT_EQ(refusal("a", "a"), "checkpoint: the name \"a\" occurs twice");
  EXPECT_EQ(refusal("", ""), "checkpoint: the name \"\" occurs twice");
  EXPECT_EQ(refusal("a", ""), "no error");
}

}  // namespace
}  // namespace tessera::checkpoint
