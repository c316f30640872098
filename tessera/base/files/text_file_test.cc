#include "tessera/base/files/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
