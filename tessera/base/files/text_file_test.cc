#include "tessera/base/files/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(TextFile, IsReadUpToItsLimit) {
  MemoryFileSystem files;
  files.create("f")->append("12345678");
  EXPECT_EQ(read_text_file(files, "f", {.name = "text", .max_bytes = 8, .remedy = ""}), "12345678");
  EXPECT_THAT([&] { read_text_file(files, "f", {.name = "list", .max_bytes = 7, .remedy = "cut it"}); },
              testing::ThrowsMessage<InvalidArgument>("list \"f\": has 8 B, at most 7 B are read: cut it"));
}

TEST(TextFile, WhatCannotBeOpenedIsSaidInWordsOfItsOwn) {
  auto& files = FileSystem::local();
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-no-text-{}", getpid());
  std::filesystem::create_directories(folder / "directory");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto expect_refused = [&](const char* name, const std::string& words) {
    const auto path = (folder / name).string();
    EXPECT_THAT([&] { read_settings(files, path, "plan"); },
                testing::ThrowsMessage<IoError>(path + ": cannot open: " + words));
  };
  expect_refused("directory", "it is a directory, not a regular file");
  expect_refused("pipe", "it is a pipe, not a regular file");
  expect_refused("missing", "No such file or directory");
  std::filesystem::remove_all(folder);
}

TEST(TextFile, OfManyGigabytesIsRefusedUnread) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("tessera-text-file-{}", getpid());
  FileSystem::local().create(path.string())->close();
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // no block of it is on the disk
  EXPECT_THAT([&] { read_settings(FileSystem::local(), path.string(), "machine profile"); },
              testing::ThrowsMessage<InvalidArgument>(
                  testing::AllOf(testing::StartsWith("machine profile \""), testing::HasSubstr("at most 256"))));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera
