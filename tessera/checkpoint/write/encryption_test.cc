#include "tessera/checkpoint/format/encryption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/manifest/manifest_tensor.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/read/decrypt_checkpoint.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/write/commit.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kKey = "0123456789abcdef";
const std::string kOtherKey = "0123456789abcdeF";
constexpr const char* kPath = "d/CKP-1_1.ckpt";

std::vector<Entry> entries() {
  return {Entry("secret.weight", Tensor::full({DType::kF32, {4, 4}}, 0.25)), Entry("empty", Tensor(DType::kF32, {0})),
          Entry("note", std::string("a text"))};
}

// In AES-CBC as the reference would have written it, which save() refuses; with a manifest that describes it.
void save_cbc(FileSystem& files, const Encryption& encryption, const std::string& path) {
  commit(files, path, 0600, [&](WritableFile& file) {
    return write_encrypted(file, encryption, [&](WritableFile& to) {
      Manifest manifest{.info = {.epoch = 1, .step_in_epoch = 1, .step = 1}};
      CkptWriter writer(to);
      for (const auto& entry : entries()) {
        manifest.tensors.push_back(manifest_tensor(entry, writer.add(entry), /*appended=*/false));
      }
      writer.finish();
      manifest.files.push_back({.name = base_name(path), .size_bytes = writer.size_bytes()});
      return manifest;
    });
  });
}

void save_with(FileSystem& files, const Encryption& encryption, const std::string& path = kPath) {
  if (encryption.is_on() && encryption.mode == kAesCbc) return save_cbc(files, encryption, path);
  save(files, {.path = path, .encryption = encryption}, entries(), {.epoch = 1, .step_in_epoch = 1, .step = 1});
}

uint32_t word_at(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// What `plain` becomes in blocks of so many bytes.
std::string encrypted(const std::string& plain, const Encryption& encryption, int64_t block_bytes) {
  MemoryFileSystem files;
  const auto file = files.create("f");
  EncryptingFile encrypting(*file, encryption, block_bytes);
  encrypting.append(plain);
  encrypting.finish();
  return files.read_text("f");
}

std::string decrypted(const std::string& bytes, const Encryption& encryption) {
  const auto file = decrypt(std::as_bytes(std::span(bytes.data(), bytes.size())), "f", encryption);
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

struct Modes : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, Modes, testing::Values("AES-GCM", "AES-GCM/reference", "AES-CBC"),
                         [](const auto& parameter) {
                           return parameter.param == "AES-GCM"   ? "Gcm"
                                  : parameter.param == "AES-CBC" ? "Cbc"
                                                                 : "Reference";
                         });

TEST_P(Modes, WhatIsSavedIsLoadedWithItsKey) {
  for (const size_t key_bytes : {16, 24, 32}) {
    MemoryFileSystem files;
    const Encryption encryption{std::string(key_bytes, 'k'), GetParam()};
    save_with(files, encryption);
    const auto loaded = load(files, kPath, encryption);
    EXPECT_TRUE(loaded.is_verified());
    EXPECT_TRUE(bit_equal(loaded.find("secret.weight")->read(), entries()[0].owner));
    EXPECT_EQ(loaded.find("note")->read_text(), "a text");
    EXPECT_EQ(loaded.find("empty")->shape, (Shape{0}));
  }
}

TEST_P(Modes, AnotherKeyIsAClearError) {
  MemoryFileSystem files;
  save_with(files, {kKey, GetParam()});
  const auto refusal = [&](const Encryption& decryption) {
    return message_of([&] { load(files, kPath, decryption); });
  };
  EXPECT_THAT(
      refusal({kOtherKey, GetParam()}),
      AllOf(HasSubstr(kPath), HasSubstr("the key is another one, or the file is damaged"), Not(HasSubstr(kOtherKey))));
  EXPECT_THAT(refusal({}),
              HasSubstr("d/CKP-1_1.ckpt: is encrypted (" + GetParam() + "); its key is needed to read it"));
  if (GetParam() != "AES-GCM") {  // of which the file says what it is
    const std::string other_mode = GetParam() == "AES-CBC" ? "AES-GCM" : "AES-CBC";
    EXPECT_THAT(refusal({kKey, other_mode}), HasSubstr("is encrypted with " + GetParam() + ", not with " + other_mode));
  }
  EXPECT_THAT(refusal({"short", GetParam()}),
              AllOf(HasSubstr("16, 24 or 32 bytes, it has 5"), Not(HasSubstr("short"))));
  EXPECT_THAT(refusal({kKey, "DES"}),
              HasSubstr("must be \"AES-GCM\", \"AES-GCM/reference\" or \"AES-CBC\", got \"DES\""));
}

TEST_P(Modes, FilesShowNeitherValuesNorKey) {
  MemoryFileSystem files;
  save_with(files, {kKey, GetParam()});
  const auto file = files.read_text(kPath);
  const auto manifest = files.read_text(manifest_path(kPath));
  for (const auto& text : {file, manifest}) EXPECT_THAT(text, Not(HasSubstr(kKey)));
  EXPECT_THAT(file, Not(HasSubstr("secret.weight")));
  EXPECT_THAT(manifest, AllOf(HasSubstr("\"encryption\":\"" + GetParam() + "\""), HasSubstr("secret.weight")));
  for (const auto& tensor : parse_manifest(manifest, "m").tensors) EXPECT_EQ(tensor.slices[0].crc32c, 0);
}

TEST_P(Modes, EveryBitFlipIsDetectedWithoutAKey) {
  MemoryFileSystem files;
  save_with(files, {kKey, GetParam()}, "d/CKP-1_1.ckpt");
  EXPECT_EQ(verify(files, kPath).state, Verified::kYes);
  EXPECT_EQ(find_newest(files, "d", "CKP").path, kPath);
  const auto whole = files.read_text(kPath);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    overwrite(files, kPath, damaged);
    ASSERT_EQ(verify(files, kPath).state, Verified::kNo) << bit;
  }
}

TEST_P(Modes, WithoutAManifestStructureAndKeyStillCount) {
  MemoryFileSystem files;
  save_with(files, {kKey, GetParam()});
  files.remove(manifest_path(kPath));
  EXPECT_FALSE(load(files, kPath, {kKey, GetParam()}).is_verified());
  overwrite(files, "d/CKP-1_1.ckpt.rank_1", "slices");
  EXPECT_THAT(message_of([&] { load(files, kPath, {kKey, GetParam()}); }), HasSubstr("holds one rank's slices"));
  files.remove("d/CKP-1_1.ckpt.rank_1");
  const auto whole = files.read_text(kPath);
  for (size_t size = 0; size < whole.size(); ++size) {
    overwrite(files, kPath, whole.substr(0, size));
    ASSERT_NE(message_of([&] { load(files, kPath, {kKey, GetParam()}); }), "no error") << size;
  }
}

TEST_P(Modes, BlocksOfTheReferenceAreLaidOutAsDocumented) {
  if (GetParam() == "AES-GCM") return;
  const bool gcm = GetParam() == "AES-GCM/reference";
  const std::string plain = "forty bytes of plain text, in two blocks";
  const auto bytes = encrypted(plain, {kKey, GetParam()}, 32);
  size_t at = 0;
  for (const size_t content : {gcm ? 32 : 48, gcm ? 8 : 16}) {
    EXPECT_EQ(word_at(bytes, at), gcm ? 0x7F3A5ED8 : 0x7F3A5ED9);
    at += gcm ? 4 + 16 : 4;
    EXPECT_EQ(word_at(bytes, at), 4 + 16 + 4 + content);
    EXPECT_EQ(word_at(bytes, at + 4), 16);
    EXPECT_EQ(word_at(bytes, at + 24), content);
    at += 28 + content;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(decrypted(bytes, {kKey, GetParam()}), plain);
  EXPECT_NE(encrypted(plain, {kKey, GetParam()}, 32), bytes) << "an initial vector is used once";
}

TEST(Encryption, BoundBlocksAreLaidOutAsDocumented) {
  const std::string plain = "forty bytes of plain text, in two blocks";
  const auto bytes = encrypted(plain, {kKey}, 32);
  EXPECT_EQ(bytes.substr(0, 8), "\x89TSRAES1");
  EXPECT_EQ(word_at(bytes, 8), 32);
  EXPECT_EQ(word_at(bytes, 12), 0);
  size_t at = 48;
  for (const size_t content : {32, 8}) {
    EXPECT_EQ(word_at(bytes, at), content);
    EXPECT_EQ(word_at(bytes, at + 4), content == 8) << "whether it is the last";
    at += 8 + content + 16;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(decrypted(bytes, {kKey}), plain);
  EXPECT_NE(encrypted(plain, {kKey}, 32).substr(16), bytes.substr(16)) << "a salt is used once";
  EXPECT_EQ(decrypted(encrypted(plain.substr(0, 32), {kKey}, 32), {kKey}), plain.substr(0, 32)) << "one full block";
  EXPECT_EQ(decrypted(encrypted("", {kKey}, 32), {kKey}), "");
  for (const char* mode : {"AES-GCM/reference", "AES-CBC"}) EXPECT_EQ(decrypted(bytes, {kKey, mode}), plain);
}

// Without a manifest: the file itself must notice.
TEST(Encryption, BoundBlocksNoticeEveryChange) {
  std::string plain;
  for (int i = 0; i < 200; ++i) plain += static_cast<char>('a' + i % 26);
  const auto bytes = encrypted(plain, {kKey}, 64);  // three full blocks and one of 8 bytes
  const auto refusal = [&](const std::string& changed) { return message_of([&] { decrypted(changed, {kKey}); }); };
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    ASSERT_NE(refusal(damaged), "no error") << bit;
  }
  for (size_t size = 0; size < bytes.size(); ++size) ASSERT_NE(refusal(bytes.substr(0, size)), "no error") << size;
  const auto header = bytes.substr(0, 48);
  std::vector<std::string> blocks;
  for (size_t at = 48; at < bytes.size(); at += 88) blocks.push_back(bytes.substr(at, 88));
  ASSERT_EQ(blocks.size(), 4U);
  const auto of = [&](const std::vector<size_t>& order) {
    auto file = header;
    for (const size_t i : order) file += blocks[i];
    return file;
  };
  EXPECT_EQ(of({0, 1, 2, 3}), bytes);
  EXPECT_THAT(refusal(of({1, 0, 2, 3})), HasSubstr("the block at byte 48 cannot be decrypted")) << "exchanged";
  EXPECT_THAT(refusal(of({0, 2, 3})), HasSubstr("the block at byte 136 cannot be decrypted")) << "one taken out";
  EXPECT_THAT(refusal(of({0, 1, 1, 3})), HasSubstr("the block at byte 224 cannot be decrypted")) << "one doubled";
  EXPECT_THAT(refusal(of({0, 1})), HasSubstr("ends after 2 blocks, without its last one"));
  EXPECT_THAT(refusal(of({0, 1, 2})), HasSubstr("ends after 3 blocks, without its last one"));
  EXPECT_THAT(refusal(of({0, 1, 2, 3, 3})), HasSubstr("goes on after its last block"));
  const auto other = encrypted(plain, {kKey}, 64);  // of the same key and text
  EXPECT_THAT(refusal(header + other.substr(48, 88) + bytes.substr(136)), HasSubstr("cannot be decrypted"));
}

TEST(Encryption, BlocksOfTheReferenceNoticeNoExchangeAndSaySo) {
  const std::string plain(64, 'p');
  const auto bytes = encrypted(plain.substr(0, 32) + std::string(32, 'q'), {kKey, "AES-GCM/reference"}, 32);
  const auto half = bytes.size() / 2;
  testing::internal::CaptureStderr();
  EXPECT_EQ(decrypted(bytes.substr(half) + bytes.substr(0, half), {kKey}), std::string(32, 'q') + plain.substr(0, 32));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("f: is encrypted in the form AES-GCM/reference, which does not notice by itself that blocks were "
                "exchanged or are gone"));
}

TEST(Encryption, TheReferencesFormIsReadWithOneWarning) {
  MemoryFileSystem files;
  save_with(files, {kKey, "AES-GCM/reference"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(load(files, kPath, {kKey}).find("note")->read_text(), "a text");
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("d/CKP-1_1.ckpt: is encrypted in the form AES-GCM/reference, which"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(Encryption, CbcIsReadWithAWarningThatNamesFileAndForm) {
  MemoryFileSystem files;
  const Encryption cbc{kKey, "AES-CBC"};
  save_with(files, cbc);
  testing::internal::CaptureStderr();
  EXPECT_EQ(load(files, kPath, cbc).find("note")->read_text(), "a text");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("d/CKP-1_1.ckpt: is encrypted in the form AES-CBC, which notices hardly any change by itself; "
                        "what is saved with \"AES-GCM\" notices every change"));
  save_with(files, {kKey});
  testing::internal::CaptureStderr();
  load(files, kPath, cbc);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "of what has no such form";
}

TEST(Encryption, CbcIsOnlyRead) {
  MemoryFileSystem files;
  EXPECT_EQ(
      message_of([&] {
        save(files, {.path = kPath, .encryption = {kKey, "AES-CBC"}}, entries(), {});
      }),
      "AES-CBC is only read: a file in that form does not notice when it is changed; save with \"AES-GCM\", or with "
      "\"AES-GCM/reference\" what the reference is to read");
  EXPECT_FALSE(files.exists(kPath));
}

TEST(Encryption, ReadsBytesOfTheOpensslProgram) {
  // printf 'one block of plain text' | openssl enc -aes-128-cbc -K 303132...66 -iv 00..0f
  std::string bytes("\xD9\x5E\x3A\x7F\x38\x00\x00\x00\x10\x00\x00\x00", 12);
  for (char i = 0; i < 16; ++i) bytes += i;
  bytes += std::string("\x20\x00\x00\x00", 4);
  for (const int byte :
       {0x89, 0x09, 0x89, 0x88, 0x4F, 0xEB, 0xCA, 0xFD, 0x64, 0xAF, 0xCC, 0x42, 0xE8, 0x94, 0xEB, 0x4A,
        0x4C, 0xDD, 0xFE, 0xFC, 0x32, 0xDA, 0xDE, 0x74, 0x02, 0x34, 0x33, 0xC7, 0x1B, 0xD9, 0xC5, 0xFA})
    bytes += static_cast<char>(byte);
  EXPECT_EQ(decrypted(bytes, {kKey, "AES-CBC"}), "one block of plain text");
}

TEST_P(Modes, FilesOfSeveralRanksAreReadTogether) {
  if (GetParam() == "AES-CBC") return;
  MemoryFileSystem files;
  const Encryption encryption{kKey, GetParam()};
  constexpr int kRanks = 3;
  const auto messages = ThreadBarrier::run(kRanks, [&](Barrier& barrier) {
    const auto rank = static_cast<int64_t>(barrier.rank());
    const Tensor row = Tensor::full({DType::kF32, {1, 4}}, static_cast<double>(rank));
    const Slice slice{"w", {DType::kF32, {kRanks, 4}}, Region{{rank, 0}, {1, 4}}, row.view()};
    save_slices(files, barrier, {.path = kPath, .together = {0, 1, 2}, .encryption = encryption}, std::array{slice},
                {.epoch = 1, .step_in_epoch = 1, .step = 1});
  });
  EXPECT_THAT(messages, testing::Each("no error"));
  EXPECT_EQ(verify(files, kPath).state, Verified::kYes);
  const std::vector<double> expected = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  EXPECT_EQ(load(files, kPath, encryption).find("w")->read().to_doubles(), expected);
  const auto plain = decrypt_checkpoint(files, kPath, encryption);
  EXPECT_EQ(GlobalCheckpoint::open(*plain, kPath).read_whole("w").to_doubles(), expected);
  EXPECT_THAT(message_of([&] { GlobalCheckpoint::open(files, kPath); }), HasSubstr("is encrypted"));
}

TEST(Encryption, AKeyForAPlainFileIsRefused) {
  MemoryFileSystem files;
  save_with(files, {});
  EXPECT_THAT(message_of([&] { load(files, kPath, {kKey}); }), HasSubstr("is not encrypted, but a key was given"));
}

TEST(Encryption, AManifestThatSaysOtherwiseIsRefused) {
  MemoryFileSystem files;
  save_with(files, {});
  auto manifest = parse_manifest(files.read_text(manifest_path(kPath)), "m");
  manifest.files[0].encryption = "AES-GCM";
  overwrite(files, manifest_path(kPath), to_text(manifest));
  EXPECT_THAT(message_of([&] { load(files, kPath); }), HasSubstr("is not encrypted as its manifest says"));
}

}  // namespace
}  // namespace tessera::checkpoint
