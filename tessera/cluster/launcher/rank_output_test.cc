// Where a rank's lines go when its log takes no more.
#include "tessera/cluster/launcher/rank_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/cluster/launcher/rank_process.h"

namespace tessera::cluster {
namespace {

using testing::ElementsAre;

class Output : public testing::Test {
 protected:
  Output() : path_(testing::TempDir() + "tessera_output_" + std::to_string(getpid())), target_(open_file(path_)) {}
  ~Output() override { std::filesystem::remove(path_); }

  static Socket open_file(const std::string& path) {
    return Socket(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  }
  // What a rank writes with this log, once it has ended.
  void write(const std::string& text, Socket log) {
    auto [read_end, write_end] = make_pipe();
    LauncherOutput here(target_.fd());
    RankOutput output(std::move(read_end), here, "[3] ", &last_lines_, /*holds_errors=*/false);
    output.set_log(std::make_shared<RankLog>(std::move(log)), [this](int error) { errors_.push_back(error); });
    output.set_listener([this](std::string_view line) { heard_.emplace_back(line); });
    ASSERT_EQ(::write(write_end.fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    write_end = Socket();
    while (!output.drain()) {
    }
  }
  std::string printed() const { return FileSystem::local().read_text(path_); }

  std::string path_;
  Socket target_;
  std::deque<std::string> last_lines_;
  std::vector<std::string> heard_;
  std::vector<int> errors_;
};

TEST_F(Output, GoesToTheLogAsItIs) {
  const std::string log = path_ + ".log";
  write("one\ntwo\n", open_file(log));
  EXPECT_EQ(FileSystem::local().read_text(log), "one\ntwo\n");
  EXPECT_EQ(printed(), "");
  EXPECT_THAT(errors_, ElementsAre());
  EXPECT_THAT(last_lines_, ElementsAre("one", "two"));
  std::filesystem::remove(log);
}

TEST_F(Output, IsRememberedAndHeardWithItsIndentation) {
  const std::string log = path_ + ".log";
  write("  50 %\r  File \"net.py\" \t\n    down(up(x))\n         ^^^^^ \n \nend", open_file(log));
  const std::vector<std::string> lines{"  File \"net.py\"", "    down(up(x))", "         ^^^^^", "", "end"};
  EXPECT_EQ(heard_, lines);
  EXPECT_EQ(last_lines_.front(), "  50 %");
  EXPECT_EQ(std::vector(last_lines_.begin() + 1, last_lines_.end()), lines);
  std::filesystem::remove(log);
}

TEST_F(Output, GoesOnHereWhereTheDiskOfTheLogIsFullAndSaysSoOnce) {
  write("one\ntwo\nthree", Socket(open("/dev/full", O_WRONLY | O_CLOEXEC)));
  EXPECT_EQ(printed(), "[3] one\n[3] two\n[3] three\n");
  EXPECT_THAT(errors_, ElementsAre(ENOSPC));
  EXPECT_THAT(last_lines_, ElementsAre("one", "two", "three"));
}

}  // namespace
}  // namespace tessera::cluster
