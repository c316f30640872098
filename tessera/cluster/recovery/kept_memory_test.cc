// Claims about memory that outlives who writes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/recovery/kept_memory.h"

namespace tessera::cluster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

void keep(KeptMemory& memory, const std::string& text) {
  const auto to = memory.begin(text.size());
  std::memcpy(to.data(), text.data(), text.size());
  memory.commit();
}

std::vector<std::string> kept_in(const KeptMemory& memory) {
  std::vector<std::string> texts;
  for (const auto bytes : memory.versions())
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

std::string path_of(const KeptMemory& memory) { return fmt::format("/proc/self/fd/{}", memory.fd()); }

TEST(KeptMemory, HasTheNewestTwoVersionsNewestFirst) {
  KeptMemory memory;
  EXPECT_THAT(kept_in(memory), IsEmpty());
  for (const char* text : {"one", "two", "three"}) keep(memory, text);
  EXPECT_THAT(kept_in(memory), ElementsAre("three", "two"));
}

TEST(KeptMemory, KeepsTheVersionThatATrainingGoesOnFromWhenItWritesTheNext) {
  KeptMemory memory;
  for (const char* text : {"one", "two"}) keep(memory, text);
  memory.forget_newer(memory.versions()[1]);
  EXPECT_EQ(kept_in(memory), std::vector<std::string>{"one"});
  keep(memory, "another two");
  EXPECT_EQ(kept_in(memory), (std::vector<std::string>{"another two", "one"}));
  memory.forget_newer(memory.versions()[0]);
  EXPECT_EQ(kept_in(memory).size(), 2U) << "none is newer than the newest";
}

TEST(KeptMemory, WhatWasNotCommittedIsNoVersion) {
  KeptMemory memory;
  keep(memory, "one");
  keep(memory, "two");
  std::memcpy(memory.begin(5).data(), "three", 5);
  EXPECT_THAT(kept_in(memory), ElementsAre("two"));
  KeptMemory again(path_of(memory));
  EXPECT_THAT(kept_in(again), ElementsAre("two"));
  keep(again, "four");
  EXPECT_THAT(kept_in(memory), ElementsAre("four", "two"));
}

TEST(KeptMemory, OutlivesAProcessThatIsKilledWhileItWrites) {
  KeptMemory memory;
  keep(memory, std::string(1 << 20, 'a'));
  keep(memory, std::string(1 << 20, 'b'));
  const pid_t writer = fork();
  if (writer == 0) {
    KeptMemory own(path_of(memory));
    for (char c = 'c';; c = c == 'z' ? 'c' : static_cast<char>(c + 1)) {
      const auto to = own.begin(1 << 20);
      std::memset(to.data(), c, to.size());
      own.commit();
    }
  }
  for (int looks = 0; looks < 50; ++looks) usleep(1000);
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  const auto versions = memory.versions();
  ASSERT_FALSE(versions.empty());
  for (const auto version : versions) {
    EXPECT_TRUE(std::ranges::all_of(version, [&](std::byte b) { return b == version[0]; })) << "a torn version";
  }
}

TEST(KeptMemory, GrowsAndLetsGoOfWhatWasThere) {
  KeptMemory memory;
  keep(memory, "small");
  keep(memory, std::string(10000, 'x'));
  EXPECT_THAT(kept_in(memory), ElementsAre(std::string(10000, 'x')));
  keep(memory, "small");
  EXPECT_THAT(kept_in(memory), ElementsAre("small", std::string(10000, 'x')));
}

TEST(KeptMemory, WhatIsNoneOfOursIsNotTakenForAVersion) {
  const std::string path = testing::TempDir() + fmt::format("not_kept_{}", getpid());
  for (const size_t size : {size_t{0}, size_t{100}, size_t{1} << 16}) {
    FILE* file = std::fopen(path.c_str(), "w");
    for (size_t i = 0; i < size; ++i) std::fputc('?', file);
    std::fclose(file);
    KeptMemory memory(path);
    EXPECT_THAT(kept_in(memory), IsEmpty()) << size;
    keep(memory, "one");
    EXPECT_THAT(kept_in(memory), ElementsAre("one"));
  }
  unlink(path.c_str());
  EXPECT_THROW(KeptMemory("/proc/self/fd/99999"), IoError);
}

}  // namespace
}  // namespace tessera::cluster
