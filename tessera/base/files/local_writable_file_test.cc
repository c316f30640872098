#include "tessera/base/files/local_writable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A folder in which somebody else may write, too.
struct ASharedFolder : testing::Test {
  ASharedFolder() {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    disk.create(own)->append("mine");
  }
  ~ASharedFolder() override { std::filesystem::remove_all(folder); }
  void expect_refused(const std::string& path) {
    EXPECT_THAT(
        [&] { disk.create(path); },
        ThrowsMessage<IoError>(path + ": cannot create: a link, pipe or device of that name is there; remove it"));
  }

  FileSystem& disk = FileSystem::local();
  const std::string folder = testing::TempDir() + fmt::format("tessera-shared-folder-{}", getpid());
  const std::string own = folder + "/own";
  const std::string laid = folder + "/laid";
};

TEST_F(ASharedFolder, LeadsNobodyToOverwriteAnotherFile) {
  std::filesystem::create_symlink(own, laid);
  expect_refused(laid);
  EXPECT_EQ(disk.read_text(own), "mine");
  disk.write_atomically(laid, "new");  // in the link's place
  EXPECT_EQ(disk.read_text(own), "mine");
  EXPECT_EQ(disk.read_text(laid), "new");
}

TEST_F(ASharedFolder, LeadsNobodyToMakeAFileElsewhere) {
  std::filesystem::create_symlink(folder + "/elsewhere", laid);
  expect_refused(laid);
  EXPECT_FALSE(disk.exists(folder + "/elsewhere"));
}

TEST_F(ASharedFolder, LetsNobodyWaitAtAPipe) {
  ASSERT_EQ(mkfifo(laid.c_str(), 0666), 0);
  expect_refused(laid);
  std::filesystem::remove(laid);
  std::filesystem::create_symlink("/dev/full", laid);
  expect_refused(laid);
}

TEST_F(ASharedFolder, HasFilesThatAreWrittenAnew) {
  disk.create(own)->append("other");
  EXPECT_EQ(disk.read_text(own), "other");
}

}  // namespace
}  // namespace tessera
