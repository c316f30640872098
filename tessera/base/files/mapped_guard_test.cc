#include "tessera/base/files/mapped_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/files/file_system.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct CutFile : testing::Test {
  CutFile() {
    const auto file = FileSystem::local().create(path);
    file->append(std::string(1 << 20, 'x'));
    file->close();
    mapped = FileSystem::local().open(path);
  }
  ~CutFile() override { std::filesystem::remove(path); }

  static auto count(std::span<const std::byte> bytes) { return std::ranges::count(bytes, std::byte{'x'}); }

  std::string path = (std::filesystem::temp_directory_path() / fmt::format("tessera-cut-file-{}", getpid())).string();
  std::unique_ptr<ReadableFile> mapped;
};

TEST_F(CutFile, IsParsedWhileItIsWhole) { EXPECT_EQ(parse_guarded(mapped->bytes(), path, count), 1 << 20); }

TEST_F(CutFile, IsRefusedWhateverItsParserSaysOfTheZeros) {
  std::filesystem::resize_file(path, 5000);
  const auto refuses = [](auto bytes) -> int64_t { throw InvalidArgument("{} of them", count(bytes)); };
  const auto is_shorter = ThrowsMessage<IoError>(HasSubstr("became shorter while it was read"));
  EXPECT_THAT([&] { parse_guarded(mapped->bytes(), path, count); }, is_shorter);
  EXPECT_THAT([&] { parse_guarded(FileSystem::local().open(path)->bytes(), path, refuses); },
              ThrowsMessage<InvalidArgument>("5000 of them"));
  mapped = FileSystem::local().open(path);
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT([&] { parse_guarded(mapped->bytes(), path, refuses); }, is_shorter);
}

}  // namespace
}  // namespace tessera
