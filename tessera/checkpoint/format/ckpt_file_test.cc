#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/format/ckpt_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/format/crc32.h"
#include "tessera/checkpoint/format/element_hash.h"
#include "tessera/testing/checkpoints/strategy_messages.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Bytes of one file, written by hand from docs/checkpoint_format.md: w = f32[2,1] {1, 2}, epoch_num = i64[] 2, and the
// text s = "h" + U+00E9.
const std::string kGolden = std::string(
                                "\x0A\x1C\x0A\x01w\x12\x17\x08\x02\x08\x01\x12\x07"
                                "Float32"
                                "\x1A\x08\x00\x00\x80\x3F\x00\x00\x00\x40",
                                30) +
                            std::string(
                                "\x0A\x1E\x0A\x09"
                                "epoch_num"
                                "\x12\x11\x12\x05"
                                "Int64"
                                "\x1A\x08\x02\x00\x00\x00\x00\x00\x00\x00",
                                32) +
                            std::string(
                                "\x0A\x16\x0A\x01s\x12\x11\x08\x00\x12\x03str"
                                "\x1A\x08\x68\x00\x00\x00\xE9\x00\x00\x00",
                                24);
// zlib's crc32 of kGolden.
constexpr uint32_t kGoldenCrc = 0xA62C4AD6U;
const std::string kTrailer = "crc_num" + std::string(6, '\0') + std::string("\xA6\x2C\x4A\xD6", 4);

class Bytes : public ReadableFile {
 public:
  explicit Bytes(std::string text) : text_(std::move(text)) {}
  std::span<const std::byte> bytes() const override { return std::as_bytes(std::span(text_)); }

 private:
  std::string text_;
};

CkptFile parse(const std::string& bytes) { return {std::make_unique<Bytes>(bytes), "x.ckpt"}; }

std::string write(const std::vector<Entry>& entries, const CkptWriter::Options& options = {}) {
  MemoryFileSystem files;
  const auto file = files.create("x.ckpt");
  CkptWriter writer(*file, options);
  for (const auto& entry : entries) writer.add(entry);
  writer.finish();
  auto bytes = files.read_text("x.ckpt");
  EXPECT_EQ(writer.size_bytes(), std::ssize(bytes));
  return bytes;
}

// The pieces of the format, for files that no writer would make.
std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}
std::string field(int number, const std::string& content) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(content.size()) + content;
}
std::string dims(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += "\x08" + varint(static_cast<uint64_t>(size));
  return text;
}
std::string value(const std::string& name, const std::string& tensor) {
  return field(1, field(1, name) + field(2, tensor));
}
std::string tensor(const std::vector<int64_t>& sizes, const std::string& type, const std::string& content) {
  return dims(sizes) + field(2, type) + field(3, content);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}
std::string refusal(const std::string& bytes) {
  return message_of([&] { parse(bytes); });
}

std::vector<Entry> golden_entries() {
  return {Entry("w", Tensor::of<float>({2, 1}, {1, 2})), Entry::number("epoch_num", int64_t{2}),
          Entry("s", std::string("h\xC3\xA9"))};
}

TEST(CkptWriter, WritesTheGoldenBytes) { EXPECT_EQ(write(golden_entries()), kGolden); }

TEST(CkptWriter, AppendsTheReferencesTrailer) {
  EXPECT_EQ(write(golden_entries(), {.trailer = true}), kGolden + kTrailer);
}

TEST(CkptReader, ReadsTheGoldenBytesWithoutCopying) {
  const auto file = parse(kGolden);
  ASSERT_EQ(file.entries().size(), 3U);
  const auto& w = file.entries()[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.type_text(), "f32[2,1]");
  EXPECT_EQ(w.pieces.at(0).data(), file.bytes().data() + 22);
  EXPECT_THAT(w.read().to_doubles(), ElementsAre(1, 2));
  EXPECT_EQ(file.entries()[1].offset, 30);
  EXPECT_EQ(file.entries()[1].shape, Shape{});
  EXPECT_EQ(file.entries()[1].read().item(), 2);
  EXPECT_EQ(file.entries()[2].read_text(), "h\xC3\xA9");
  EXPECT_FALSE(file.has_trailer());
}

TEST(CkptReader, VerifiesTheTrailer) {
  EXPECT_TRUE(parse(kGolden + kTrailer).has_trailer());
  auto damaged = kGolden + kTrailer;
  damaged[25] ^= 1;  // inside w's content
  EXPECT_THAT(refusal(damaged), HasSubstr("the checksum trailer says"));
}

TEST(CkptReader, TakesOldScalarsAndOtherSpellings) {
  const auto file = parse(value("a", tensor({0}, "Float32", std::string(4, '\0'))) +
                          value("b", tensor({2}, "Uint8", "xy")) + value("c", tensor({0}, "Float32", "")) +
                          value("d", field(1, std::string("\x02\x01", 2)) + field(2, "Int8") + field(3, "pq")));
  EXPECT_EQ(file.entries()[0].type_text(), "f32[]");
  EXPECT_EQ(file.entries()[1].type_text(), "u8[2]");
  EXPECT_EQ(file.entries()[2].type_text(), "f32[0]");
  EXPECT_EQ(file.entries()[3].type_text(), "i8[2,1]") << "packed dims";
}

TEST(CkptReader, SkipsFieldsOfLaterVersions) {
  const std::string later = field(9, "later") + varint(10 << 3) + varint(7);
  const auto file = parse(field(1, field(1, "a") + later + field(2, tensor({1}, "Int8", "x") + later)));
  EXPECT_EQ(file.entries()[0].type_text(), "i8[1]");
}

TEST(Ckpt, EveryDtypeRoundTrips) {
  std::vector<Entry> entries;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto values = Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5}).cast(dtype);
    entries.emplace_back(std::string("matrix.") + to_string(dtype), values);
    entries.emplace_back(std::string("scalar.") + to_string(dtype), Tensor::full({dtype, {}}, 1));
  }
  const auto file = parse(write(entries));
  ASSERT_EQ(file.entries().size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(file.entries()[i].name, entries[i].name);
    EXPECT_TRUE(bit_equal(file.entries()[i].read(), entries[i].owner)) << entries[i].name;
  }
}

// testdata/reference_2_10.ckpt was written by the reference's release 2.10: save_checkpoint of a matrix
// {{0,1,2},{3,4,5}} and a scalar 1 of every dtype and of a tensor without elements, with append_dict and crc_check.
TEST(Ckpt, ReadsAndWritesTheReferencesBytes) {
  const auto path = std::string(TESSERA_SOURCE_DIR) + "/tessera/checkpoint/testdata/reference_2_10.ckpt";
  std::vector<Entry> entries;
  for (const auto dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kI16, DType::kI32,
                           DType::kI64, DType::kU8, DType::kU16, DType::kU32, DType::kU64, DType::kBool}) {
    entries.emplace_back(std::string("matrix.") + to_string(dtype),
                         Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5}).cast(dtype));
    entries.emplace_back(std::string("scalar.") + to_string(dtype), Tensor::full({dtype, {}}, 1));
  }
  entries.emplace_back("empty", Tensor(DType::kF32, {0, 3}));
  entries.push_back(Entry::number("epoch_num", int64_t{2}));
  entries.push_back(Entry::number("lr", 0.5F));
  entries.push_back(Entry::number("done", true));
  entries.emplace_back("note", std::string("h\xC3\xA9\xE2\x82\xAC"));
  EXPECT_EQ(write(entries, {.trailer = true}), FileSystem::local().read_text(path));

  std::erase_if(entries, [](const Entry& entry) { return entry.name == "empty"; });
  const auto file = CkptFile::open(FileSystem::local(), path);
  EXPECT_TRUE(file.has_trailer());
  ASSERT_EQ(file.entries().size(), entries.size());
  for (size_t i = 0; i + 1 < entries.size(); ++i) {
    EXPECT_TRUE(bit_equal(file.entries()[i].read(), entries[i].owner)) << entries[i].name;
  }
  EXPECT_EQ(file.entries().back().read_text(), entries.back().text);
}

TEST(Ckpt, TextsRoundTrip) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8E\x88";  // one to four bytes a character
  const auto file = parse(write({Entry("t", text), Entry("empty", std::string())}));
  EXPECT_EQ(file.entries()[0].read_text(), text);
  EXPECT_EQ(file.entries()[1].read_text(), "");
  EXPECT_THROW(file.entries()[0].read(), InvalidArgument);
}

TEST(Ckpt, StridedViewsAreWrittenRowMajor) {
  // Larger than a chunk, so that it is cut along the outermost dim and below it.
  Tensor large(DType::kF32, {3, 1500, 300});
  for (int64_t i = 0; i < large.num_elements(); ++i)
    large.values<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  const TensorView swapped(large.view().data, DType::kF32, {300, 1500, 3}, {1, 300, 450000});
  const TensorView wide(large.view().data, DType::kF32, {3, 300, 1500}, {450000, 1, 300});
  const auto file = parse(write({Entry("swapped", swapped), Entry("wide", wide)}));
  EXPECT_TRUE(bit_equal(file.entries()[0].read(), Tensor::copy_of(swapped)));
  EXPECT_TRUE(bit_equal(file.entries()[1].read(), Tensor::copy_of(wide)));
}

TEST(Ckpt, ReadsIntoStridedAndOtherTypedMemory) {
  const auto file = parse(write({Entry("m", Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}))}));
  Tensor to(DType::kF64, {3, 2});
  file.entries()[0].read_into({to.view().data, DType::kF64, {2, 3}, {1, 2}});
  EXPECT_THAT(to.to_doubles(), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(message_of([&] { file.entries()[0].read_into(to.view()); }),
              HasSubstr("m: shape [2,3] in the checkpoint, [3,2] wanted"));
}

TEST(Ckpt, LargeTensorsAreCutIntoRecordsOfEqualNameAndDims) {
  const auto content = Tensor::of<int16_t>({5}, {1, 2, 3, 4, 5});
  const auto bytes = write({Entry("a", content), Entry("b", content)}, {.max_record_bytes = 4});
  const auto record = [](const std::string& part) { return value("a", tensor({5}, "Int16", part)); };
  EXPECT_THAT(bytes, testing::StartsWith(record(std::string("\1\0\2\0", 4)) + record(std::string("\3\0\4\0", 4)) +
                                         record(std::string("\5\0", 2))));
  const auto file = parse(bytes);
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.entries()[0].pieces.size(), 3U);
  EXPECT_TRUE(bit_equal(file.entries()[0].read(), content));
  EXPECT_TRUE(bit_equal(file.entries()[1].read(), content));
}

TEST(Ckpt, TensorsWithoutElementsLeaveNoRecord) {
  EXPECT_EQ(
      parse(write({Entry("none", Tensor(DType::kF32, {0, 3})), Entry("one", Tensor::scalar(1.0F))})).entries().size(),
      1U);
}

TEST(CkptReader, TruncationIsDetectedEverywhereButBetweenRecords) {
  for (size_t size = 0; size < kGolden.size(); ++size) {
    if (size == 30 || size == 62) continue;  // only a manifest can tell
    EXPECT_THAT(refusal(kGolden.substr(0, size)), testing::StartsWith("x.ckpt: ")) << size;
  }
}

TEST(CkptReader, DamageNamesByteAndTensor) {
  EXPECT_EQ(refusal(""), "x.ckpt: is empty, it must hold a checkpoint");
  EXPECT_EQ(refusal(kGolden.substr(0, 20)),
            "x.ckpt: byte 1: the file is truncated or damaged: a value of 28 bytes, but 18 are left");
  EXPECT_EQ(refusal(value("w", tensor({2}, "Float32", "1234"))),
            "x.ckpt: byte 0: tensor \"w\" f32[2] needs 8 bytes, the file has 4");
  EXPECT_EQ(refusal(value("w", tensor({2}, "Float32", "123456789"))),
            "x.ckpt: byte 0: tensor \"w\" f32[2] needs 8 bytes, the file has 9");
  EXPECT_THAT(refusal(value("w", tensor({1}, "Complex64", "12345678"))), HasSubstr("unknown dtype \"Complex64\""));
  EXPECT_THAT(refusal("{\"a\": 1}"), HasSubstr("not a .ckpt file, or damaged"));
  EXPECT_THAT(refusal(std::string("\xD8\x5E\x3A\x7F", 4) + kGolden), HasSubstr("is encrypted (AES-GCM/reference)"));
  EXPECT_THAT(refusal(field(1, field(1, "m") + field(3, ""))), HasSubstr("value \"m\" is a map tensor"));
  EXPECT_THAT(refusal(field(1, field(1, "m"))), HasSubstr("value \"m\" has no tensor"));
  EXPECT_THAT(refusal(field(1, field(2, tensor({1}, "Int8", "x")))), HasSubstr("a value has no name"));
  EXPECT_THAT(refusal(value("m", field(2, "Int8"))), HasSubstr("tensor \"m\" has no tensor_content"));
  EXPECT_THAT(refusal(value("m", field(3, "x"))), HasSubstr("tensor \"m\" has no tensor_type"));
  EXPECT_THAT(refusal(value("\xFF", tensor({1}, "Int8", "x"))), HasSubstr("a name is not UTF-8"));
  EXPECT_THAT(refusal(value("t", tensor({0}, "str", "abc"))), HasSubstr("no multiple of 4"));
  EXPECT_THAT(refusal(value("t", tensor({0}, "str", "\xFF\xFF\xFF\xFF"))), HasSubstr("no code point"));
}

TEST(CkptReader, RefusesNamesThatOccurTwice) {
  const auto a = value("a", tensor({1}, "Int8", "x"));
  const auto b = value("b", tensor({1}, "Int8", "x"));
  EXPECT_THAT(refusal(a + a), HasSubstr("byte 18: the name \"a\" occurs twice")) << "complete, so not a second part";
  EXPECT_THAT(refusal(a + b + a), HasSubstr("occurs twice"));
  const auto half = value("a", tensor({2}, "Int8", "x"));
  EXPECT_THAT(refusal(half + b + half), HasSubstr("tensor \"a\" i8[2] needs 2 bytes, the file has 1"));
  EXPECT_THAT(refusal(half + value("a", tensor({1, 2}, "Int8", "x"))), HasSubstr("needs 2 bytes"));
  EXPECT_THAT(refusal(half + value("a", tensor({2}, "Int9", "x"))), HasSubstr("needs 2 bytes"));
}

TEST(CkptReader, HostileLengthsAndDimsAreRefused) {
  const std::string huge = varint(uint64_t{1} << 63);
  EXPECT_THAT(refusal("\x0A" + huge), HasSubstr("9223372036854775808 bytes, but 0 are left"));
  EXPECT_THAT(refusal("\x0A" + std::string(10, '\xFF')), HasSubstr("longer than 64 bits"));
  EXPECT_THAT(refusal(field(1, "\x0A" + huge)), HasSubstr("a name of 9223372036854775808 bytes"));
  EXPECT_THAT(refusal(value("w", dims({4}) + field(2, "Int8") + "\x1A" + huge)), HasSubstr("tensor_content of"));
  EXPECT_THAT(refusal(value("w", tensor({-1}, "Int8", "x"))), HasSubstr("dim 0 is -1, it must not be negative"));
  EXPECT_THAT(refusal(value("w", tensor({int64_t{1} << 62, 4, 3}, "Int8", "x"))),
              HasSubstr("more bytes than an int64"));
  EXPECT_THAT(refusal(value("w", tensor({0, int64_t{1} << 62, 4}, "Int8", ""))), HasSubstr("more bytes than an int64"));
  EXPECT_THAT(refusal(value("w", tensor({int64_t{1} << 61}, "Float64", "x"))), HasSubstr("more bytes than an int64"));
  EXPECT_THAT(refusal(value("w", tensor({int64_t{1} << 40}, "Int8", "x"))), HasSubstr("needs 1099511627776 bytes"));
  EXPECT_THAT(refusal(value("w", tensor(std::vector<int64_t>(9, 1), "Int8", "x"))), HasSubstr("more than 8 dims"));
  EXPECT_THAT(refusal(value("w", tensor({1}, std::string(1000, 'x'), "x"))), HasSubstr("tensor_type has 1000 bytes"));
  EXPECT_THAT(refusal(value(std::string(100000, 'n'), tensor({1}, "Int8", "x"))), HasSubstr("a name of 100000 bytes"));
  EXPECT_THAT(refusal(field(1, varint(9 << 3 | 3))), HasSubstr("wire type 3 is not used"));
}

TEST(CkptReader, AnyDamageIsAnErrorOrAParseNeverACrash) {
  // Every byte of a file of several records replaced by each of some values.
  const auto whole = write(golden_entries(), {.trailer = true, .max_record_bytes = 8});
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int replacement : {0x00, 0x01, 0x0A, 0x12, 0x7F, 0x80, 0xFF}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(replacement);
      refused += refusal(damaged) != "no error";
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()));
}

TEST(CkptReader, RandomDamageIsRefusedNamingTheFile) {
  const auto whole = write(golden_entries(), {.trailer = true, .max_record_bytes = 8});
  for_each_random_damage(whole, 20000, 11, [](const std::string& damaged) {
    try {
      // What still parses can be read, to the last byte.
      const auto file = parse(damaged);
      for (const auto& entry : file.entries()) entry.is_text ? (void)entry.read_text() : (void)entry.read();
    } catch (const InvalidArgument& error) {
      ASSERT_THAT(error.what(), testing::StartsWith("x.ckpt: "));
    }
  });
}

// Large enough that another thread computes the sums.
Tensor large_tensor() {
  Tensor tensor(DType::kI32, {700, 1024});
  const auto values = tensor.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761U);
  return tensor;
}

TEST(CkptWriter, SumsOfLargeValuesAreThoseOfTheirBytesHoweverTheyAreCut) {
  const Tensor large = large_tensor();
  const Tensor other = Tensor::of<int32_t>({3}, {1, 2, 3});
  TensorView columns = large.view();  // rows that do not follow each other
  columns.shape[1] = 1000;
  const Tensor cut = Tensor::copy_of(columns);
  for (const int64_t record_bytes : {kMaxRecordBytes, int64_t{100'003}}) {
    for (const bool trailer : {false, true}) {
      MemoryFileSystem files;
      const auto file = files.create("x.ckpt");
      CkptWriter writer(*file, {.trailer = trailer, .max_record_bytes = record_bytes});
      const Written written[] = {writer.add(Entry("large", large)), writer.add(Entry("other", other)),
                                 writer.add(Entry("cut", columns))};
      writer.finish();
      const auto bytes = files.read_text("x.ckpt");
      EXPECT_EQ(writer.crc32c(), crc32c(std::as_bytes(std::span(bytes))));
      const auto loaded = parse(bytes);  // compares the trailer, too
      EXPECT_EQ(loaded.has_trailer(), trailer);
      const Tensor* const tensors[] = {&large, &other, &cut};
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(bit_equal(loaded.entries()[i].read(), *tensors[i]));
        EXPECT_EQ(written[i].crc32c, crc32c(tensors[i]->bytes()));
        EXPECT_EQ(written[i].hash, hash_elements(tensors[i]->bytes(), 4, 0));
      }
    }
  }
}

TEST(CkptWriter, AFullDiskEndsALargeValue) {
  class FullFile : public WritableFile {
   public:
    void append(std::span<const std::byte> bytes) override {
      left_ -= std::ssize(bytes);
      if (left_ < 0) throw IoError("x.ckpt: no space");
    }
    void write_at(int64_t, std::span<const std::byte>) override {}
    void sync() override {}
    void close() override {}

   private:
    int64_t left_ = 2'000'000;
  };
  const Tensor large = large_tensor();
  FullFile file;
  CkptWriter writer(file);
  EXPECT_THROW(writer.add(Entry("large", large)), IoError);
}

TEST(CkptWriter, RefusesNamesThatNoReaderCouldTake) {
  const auto x = Tensor::scalar(1.0F);
  EXPECT_THAT(message_of([&] { write({Entry("a", x), Entry("a", x)}); }), HasSubstr("the name \"a\" occurs twice"));
  EXPECT_THAT(message_of([&] { write({Entry("\xC0\x80", x)}); }), HasSubstr("must be UTF-8"));
  EXPECT_THAT(message_of([&] { write({Entry("t", std::string("\xED\xA0\x80"))}); }), HasSubstr("is not UTF-8"));
}

TEST(Ckpt, AValueMayHaveAnEmptyName) {
  const auto file = parse(write({Entry("", Tensor::scalar(2.0F)), Entry("t", std::string("text"))}));
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.entries()[0].name, "");
  EXPECT_EQ(file.entries()[0].read().item(), 2);
}

TEST(Crc32, GivesZlibsValues) {
  const std::string digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(crc32(bytes), 0xCBF43926U);
  EXPECT_EQ(crc32(bytes.subspan(3), crc32(bytes.first(3))), 0xCBF43926U);
  EXPECT_EQ(crc32(std::as_bytes(std::span(kGolden))), kGoldenCrc);
}

}  // namespace
}  // namespace tessera::checkpoint
