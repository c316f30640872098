#include "tessera/checkpoint/lock/directory_lock.h"

#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/lock/handed_on_lock.h"
#include "tessera/checkpoint/lock/waiting_lock.h"
#include "tessera/checkpoint/manifest/json_field.h"

namespace tessera::checkpoint {
namespace {

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Another one in each process. A child that was forked has that of its parent, but another pid.
const std::string& this_process() {
  static const std::string id = random_id();
  return id;
}

bool is_this_job(const LockHolder& holder, const LockHolder& self) {
  return holder.process_id == self.process_id && holder.pid == self.pid && holder.job_id == self.job_id;
}

bool is_superseded(const LockHolder& holder, const LockHolder& self) {
  return !self.job_id.empty() && holder.job_id == self.job_id && holder.job_generation < self.job_generation;
}

// Of this process, which has begun its program again since.
bool is_earlier_program(const LockHolder& holder, const LockHolder& self) {
  return is_superseded(holder, self) && holder.pid == self.pid && holder.host == self.host;
}

std::string named(const std::string& job_id) {
  return job_id.empty() ? "another job" : fmt::format("job \"{}\"", job_id);
}

std::string named_process(const LockHolder& holder) {
  return fmt::format("{} (process {} on {})", named(holder.job_id), holder.pid, holder.host);
}

[[noreturn]] void refuse(const std::string& directory, const DirectoryUse& use,
                         const std::optional<LockHolder>& holder) {
  throw InvalidArgument("{}: {} {} here; this one cannot: give each job a directory of its own", directory,
                        holder ? named_process(*holder) : "another job, whose lock does not say which,", use.does);
}

std::string to_text(const LockHolder& holder) {
  return nlohmann::ordered_json{{"job_id", holder.job_id},
                                {"host", holder.host},
                                {"pid", holder.pid},
                                {"generation", holder.generation},
                                {"process_id", holder.process_id},
                                {"job_generation", holder.job_generation}}
             .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

// Several times what a holder writes.
constexpr TextKind kLock = {.name = "lock", .max_bytes = 64 << 10, .remedy = "no job has written it"};

// nullopt when the file says nothing: its holder has not written it yet, or died while it did.
std::optional<LockHolder> read_holder(FileSystem& files, const std::string& path) {
  try {
    const auto json = parse_json(read_text_file(files, path, kLock), path);
    const JsonField root(path, "the lock", json);
    return LockHolder{.job_id = root["job_id"].text(),
                      .host = root["host"].text(),
                      .pid = root["pid"].count(),
                      .generation = root["generation"].count(INT64_MAX - 1),
                      .process_id = root.has("process_id") ? root["process_id"].text() : "",
                      .job_generation = root.has("job_generation") ? root["job_generation"].count(INT64_MAX) : 0};
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_holder(FileSystem& files, const std::string& path, const LockHolder& holder) {
  const auto file = files.create(path);  // the same file, so that the lock stays
  file->append(to_text(holder));
  file->sync();
  file->close();
}

}  // namespace

std::string directory_lock_path(const std::string& directory) { return join_path(directory, DirectoryUse().file_name); }

DirectoryLock::DirectoryLock(FileSystem& files, const std::string& directory, const std::string& job_id,
                             int64_t job_generation, DirectoryUse use)
    : files_(files),
      directory_(directory),
      use_(std::move(use)),
      path_(join_path(directory, use_.file_name)),
      self_{.job_id = job_id,
            .host = this_host(),
            .pid = ::getpid(),
            .generation = 1,
            .process_id = this_process(),
            .job_generation = job_generation} {
  files_.create_directories(directory);
  lock_ = files_.try_lock(path_);
  const auto holder = read_holder(files_, path_);
  const bool is_held = lock_ == nullptr;
  if (is_held && holder && is_this_job(*holder, self_)) {
    if (!use_.is_shared) {
      throw InvalidArgument(
          "{}: this process {} here already, for another model, and their files would be mixed: give each a directory "
          "of its own, or let one of them alone do it",
          directory, use_.does);
    }
    self_.generation = holder->generation;
    return;
  }
  if (is_held && holder && is_earlier_program(*holder, self_)) lock_ = take_handed_on_lock(path_);
  if (is_held && lock_ != nullptr) {
    self_.generation = holder->generation;
    write_holder(files_, path_, self_);
    return;
  }
  if (is_held && holder && is_superseded(*holder, self_)) {
    // What it holds are files without a name from now on: this lock, and that of a save that it was amid.
    files_.remove(path_);
    lock_ = files_.try_lock(path_);
    for (const std::string& name : lock_ == nullptr ? std::vector<std::string>() : files_.list(directory)) {
      if (name.ends_with(kSavingSuffix)) files_.remove(join_path(directory, name));
    }
  }
  if (lock_ == nullptr) refuse(directory, use_, read_holder(files_, path_));
  if (holder) {
    self_.generation = holder->generation + 1;
    taken_over_from_ = holder;
    log_warning("{}: {} {}; taken over, generation {}", directory, named_process(*holder),
                is_held ? "is of an earlier generation of this job, and holds it" : "ended without letting go of it",
                self_.generation);
  }
  write_holder(files_, path_, self_);
}

void DirectoryLock::keep() {
  // A file that says nothing may have lost its text, or be another job's that is about to write its own.
  const auto holder = read_holder(files_, path_);
  if (holder ? is_this_job(*holder, self_) : lock_ != nullptr && lock_->is_at(path_)) return;
  files_.create_directories(directory_);
  auto lock = files_.try_lock(path_);
  if (lock == nullptr) {
    const auto other = read_holder(files_, path_);
    // Where another lock of this process holds the file, that one finds out whose it is.
    if (lock_ == nullptr && (!other || is_this_job(*other, self_))) return;
    refuse(directory_, use_, other);
  }
  // Where another lock of this process had the file, that one may have let go of it.
  if (lock_ != nullptr)
    log_warning("{}: somebody has removed the lock of this job, {}; taken again", directory_, path_);
  lock_ = std::move(lock);
  write_holder(files_, path_, self_);
}

DirectoryLock::~DirectoryLock() {
  if (lock_ == nullptr) return;
  try {
    // Where somebody has removed the file, one of this name is another job's.
    if (const auto holder = read_holder(files_, path_); holder && is_this_job(*holder, self_)) files_.remove(path_);
  } catch (const Error& error) {  // the next holder will take it for one that died
    log_warning("{}", error.what());
  }
}

}  // namespace tessera::checkpoint
