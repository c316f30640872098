#include "tests/faults/failpoints.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::checkpoint::faults {
namespace {

constexpr std::array kOperations = {"create", "write", "fsync",           "close", "rename",
                                    "remove", "mkdir", "fsync_directory", "any"};
constexpr std::array kActions = {"crash", "stop", "half", "EIO", "ENOSPC", "EROFS", "after"};

template <typename Words>
void require_word(const Words& words, const std::string& word, std::string_view what) {
  if (std::find(words.begin(), words.end(), word) == words.end()) {
    throw InvalidArgument("failpoint: \"{}\" is no {}", word, what);
  }
}

[[noreturn]] void fail(int error, std::string_view operation, const std::string& path) {
  throw IoError("{}: cannot {}: {}", path, operation, std::strerror(error));
}

}  // namespace

Failpoint parse_failpoint(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() < 3 || parts.size() > 4)
    throw InvalidArgument("failpoint: must be OPERATION:ACTION:NTH, got {}", text);
  Failpoint failpoint{.operation = std::string(parts[0]),
                      .action = std::string(parts[1]),
                      .nth = parse_int(parts[2], "failpoint"),
                      .suffix = parts.size() == 4 ? std::string(parts[3]) : ""};
  require_word(kOperations, failpoint.operation, "operation");
  require_word(kActions, failpoint.action, "action");
  return failpoint;
}

bool FailpointFileSystem::fires(std::string_view operation, const std::string& path) {
  if (!failpoint_ || (failpoint_->operation != "any" && failpoint_->operation != operation)) return false;
  return path.ends_with(failpoint_->suffix) && ++matches_ == failpoint_->nth;
}

template <typename Action, typename Half>
void FailpointFileSystem::at(std::string_view operation, const std::string& path, Action&& action, Half&& do_half) {
  if (!fires(operation, path)) return action();
  const auto& what = failpoint_->action;
  if (what == "EIO") fail(EIO, operation, path);
  if (what == "ENOSPC") fail(ENOSPC, operation, path);
  if (what == "EROFS") fail(EROFS, operation, path);
  if (what == "half") {
    do_half();
    fail(ENOSPC, operation, path);
  }
  if (what == "crash") std::raise(SIGKILL);
  if (what == "stop") std::raise(SIGSTOP);
  action();
  if (what == "after") std::raise(SIGKILL);
}

class FailpointFile : public WritableFile {
 public:
  FailpointFile(FailpointFileSystem& owner, std::string path, std::unique_ptr<WritableFile> inner)
      : owner_(owner), path_(std::move(path)), inner_(std::move(inner)) {}
  void append(std::span<const std::byte> bytes) override {
    owner_.at(
        "write", path_, [&] { inner_->append(bytes); }, [&] { inner_->append(bytes.first(bytes.size() / 2)); });
  }
  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    owner_.at(
        "write", path_, [&] { inner_->write_at(offset, bytes); },
        [&] { inner_->write_at(offset, bytes.first(bytes.size() / 2)); });
  }
  void sync() override {
    owner_.at("fsync", path_, [&] { inner_->sync(); });
  }
  void close() override {
    owner_.at("close", path_, [&] { inner_->close(); });
  }

 private:
  FailpointFileSystem& owner_;
  std::string path_;
  std::unique_ptr<WritableFile> inner_;
};

std::unique_ptr<WritableFile> FailpointFileSystem::create(const std::string& path, unsigned mode) {
  std::unique_ptr<WritableFile> file;
  at("create", path, [&] { file = std::make_unique<FailpointFile>(*this, path, inner_.create(path, mode)); });
  return file;
}
void FailpointFileSystem::rename(const std::string& from, const std::string& to) {
  at("rename", from, [&] { inner_.rename(from, to); });
}
void FailpointFileSystem::remove(const std::string& path) {
  at("remove", path, [&] { inner_.remove(path); });
}
void FailpointFileSystem::create_directories(const std::string& path) {
  at("mkdir", path, [&] { inner_.create_directories(path); });
}
void FailpointFileSystem::sync_directory(const std::string& directory) {
  at("fsync_directory", directory, [&] { inner_.sync_directory(directory); });
}

}  // namespace tessera::checkpoint::faults
