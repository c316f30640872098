#include "tessera/base/processes/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/processes/descriptor.h"

namespace tessera {
namespace {

std::string link_of(const Descriptor& file) {
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file.get())).string();
}

struct stat status_of(const Descriptor& file) {
  struct stat status {};
  EXPECT_EQ(fstat(file.get(), &status), 0);
  return status;
}

TEST(MemoryFile, HasItsNameAndItsSizeAndStaysInThisProgram) {
  const Descriptor file(make_memory_file("tessera-test", 5000));
  EXPECT_EQ(link_of(file), "/memfd:tessera-test (deleted)");
  EXPECT_EQ(status_of(file).st_size, 5000);
  EXPECT_EQ(fcntl(file.get(), F_GETFD), FD_CLOEXEC);
  char last = 'x';
  ASSERT_EQ(pread(file.get(), &last, 1, 4999), 1);
  EXPECT_EQ(last, '\0');
  EXPECT_EQ(status_of(Descriptor(make_memory_file("empty"))).st_size, 0);
}

TEST(MemoryFile, BeyondTheLimitOfAFilesSizeIsRefused) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const int refused = make_memory_file("tessera-test", 4097);
  const int reason = errno;
  const Descriptor taken(make_memory_file("tessera-test", 4096));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(refused, -1);
  EXPECT_EQ(reason, EFBIG);
  EXPECT_EQ(status_of(taken).st_size, 4096);
}

TEST(SecretFile, IsThisUsersAloneAndCannotBeChangedWhereItIsSealed) {
  const Descriptor open_one(make_secret_file("tessera-test", "word"));
  const Descriptor sealed(make_secret_file("tessera-test", "word", F_SEAL_SEAL | F_SEAL_WRITE));
  for (const Descriptor* file : {&open_one, &sealed}) {
    EXPECT_EQ(status_of(*file).st_mode & 07777, 0600U);
    EXPECT_EQ(fcntl(file->get(), F_GETFD), FD_CLOEXEC);
    char content[5] = {};
    EXPECT_EQ(pread(file->get(), content, 5, 0), 4);
    EXPECT_STREQ(content, "word");
  }
  EXPECT_EQ(fcntl(sealed.get(), F_GET_SEALS), F_SEAL_SEAL | F_SEAL_WRITE);
  EXPECT_EQ(pwrite(open_one.get(), "x", 1, 0), 1);
  EXPECT_EQ(pwrite(sealed.get(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace tessera
