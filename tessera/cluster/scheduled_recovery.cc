#include "tessera/cluster/scheduled_recovery.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/processes/memory_file.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/recovery/begin_anew.h"
#include "tessera/cluster/rendezvous/membership/scheduler_state.h"
#include "tessera/cluster/tls/certificates.h"

namespace tessera::cluster {
namespace {

constexpr std::string_view kOwnDescriptors = "/proc/self/fd/";
// A scheduler that has died may be started again meanwhile.
constexpr int64_t kStateMs = 60000;

std::string path_of(int fd) { return fmt::format("{}{}", kOwnDescriptors, fd); }

// What the process was handed on by the one before is not for programs that it starts.
void close_on_exec(const std::string& path) {
  if (!path.starts_with(kOwnDescriptors)) return;
  fcntl(static_cast<int>(parse_int(path.substr(kOwnDescriptors.size()), "TESSERA_KEPT_FILE")), F_SETFD, FD_CLOEXEC);
}

// Memory of the launcher is found where it was; what a process has of its own is handed on.
bool is_own_memory(const std::string& path) { return path.empty() || path.starts_with(kOwnDescriptors); }

// The password has been wiped from the environment that the process began with.
int hand_on(const Password& password) {
  const int fd = make_secret_file("tessera-secret", password.text());
  if (fd < 0) throw IoError("cannot hand on the password of the certificates: {}", std::strerror(errno));
  return fd;
}

}  // namespace

ScheduledRecovery::ScheduledRecovery(std::shared_ptr<SchedulerLink> link, SchedulerPlace place, uint64_t generation,
                                     std::shared_ptr<comm::JobState> job)
    : link_(std::move(link)), place_(std::move(place)), generation_(generation), job_(std::move(job)) {
  close_on_exec(place_.kept_file);
  close_on_exec(place_.kept_for_others_file);
}

KeptMemory& ScheduledRecovery::memory() {
  if (!memory_) memory_.emplace(place_.kept_file);
  return *memory_;
}

// The launcher's ranks are nodes of its name.
std::string ScheduledRecovery::keeper() const {
  const std::string& node = place_.node_id;
  return own_host_name() + "/" + (is_own_memory(place_.kept_file) ? node : node.substr(0, node.rfind('/')));
}

KeptMemory* ScheduledRecovery::memory_for_others() {
  if (!place_.has_buddies) return nullptr;
  if (!memory_for_others_) memory_for_others_.emplace(place_.kept_for_others_file);
  return &*memory_for_others_;
}

std::string ScheduledRecovery::begin_anew(const std::string& why) {
  if (std::string over = link_->why_over(); !over.empty()) return over;
  log_warning("generation {} has ended, this rank begins anew for the next one: {}", generation_, why);
  return run_again();
}

std::string ScheduledRecovery::begin_anew_as_planned(const std::string& why, bool speaks) {
  if (std::string over = link_->why_over(); !over.empty()) return over;
  const std::string words =
      fmt::format("generation {} ends, and all ranks begin anew for the next one: {}", generation_, why);
  if (speaks) {
    log_warning("{}", words);
  } else {
    log_info("{}", words);
  }
  return run_again();
}

std::string ScheduledRecovery::planned_end() {
  // The scheduler tells all peers in a few milliseconds; one that has died says nothing.
  constexpr int64_t kWordMs = 500;
  if (!is_elastic()) return "";
  link_->wait_for_end(kWordMs);
  const auto end = link_->end();
  return end && end->is_planned() ? end->reason : "";
}

void ScheduledRecovery::fix_ranks(const std::string& why, const std::string& unsaved_for) {
  rendezvous::RendezvousClient& client = link_->client();
  client.fix_ranks(why, unsaved_for);
  const rendezvous::Generation generation = client.generation();
  const auto own = generation.ranks.find(place_.node_id);
  const bool is_first = own != generation.ranks.end() && own->second == 0;
  const bool could_shrink = client.is_elastic() && client.min_ranks() < generation.size;
  if (generation_ > 1 || !is_first || !could_shrink || std::exchange(has_said_fixed_, true)) return;
  log_warning(
      "--min_ranks {} has no effect: the job cannot go on with another number of ranks than {}: {}; a rank that is "
      "lost "
      "is started again as often as --max_restarts says",
      client.min_ranks(), generation.size, why);
}

// Memory that a process hands on to itself is nobody else's.
bool ScheduledRecovery::has_launcher() const {
  return !place_.kept_file.empty() && !place_.kept_file.starts_with(kOwnDescriptors);
}

std::string ScheduledRecovery::run_again() {
  try {
    std::map<std::string, std::string> settings = {
        {"TESSERA_NODE_ID", place_.node_id},
        {"TESSERA_INCARNATION", std::to_string(link_->client().incarnation())},
        {"TESSERA_TOKEN", std::to_string(link_->client().token())}};
    std::vector<int> inherited;
    if (is_own_memory(place_.kept_file)) {
      inherited.push_back(memory().fd());
      settings["TESSERA_KEPT_FILE"] = path_of(inherited.back());
    }
    if (memory_for_others_ && is_own_memory(place_.kept_for_others_file)) {
      inherited.push_back(memory_for_others_->fd());
      settings["TESSERA_KEPT_FOR_OTHERS_FILE"] = path_of(inherited.back());
    }
    if (place_.is_password_of_environment) {
      inherited.push_back(hand_on(*place_.tls_password));
      settings["TESSERA_TLS_PASSWORD_FILE"] = path_of(inherited.back());
    }
    cluster::begin_anew(settings, inherited);
  } catch (const Error& error) {
    return error.what();
  }
}

std::optional<std::string> ScheduledRecovery::find_state(const std::string& name) {
  return link_->client().find_state(name, kStateMs);
}

void ScheduledRecovery::set_state(const std::string& name, const std::string& text) {
  if (const auto* rules = rendezvous::find_blob_rules(name); rules == nullptr || text.size() > rules->max_bytes) {
    return log_warning(
        "the job's {} has {} bytes, and the scheduler keeps {}: after a loss, what was added last is made anew, and "
        "the job goes on otherwise than one that lost nothing",
        name, text.size(), rules == nullptr ? 0 : rules->max_bytes);
  }
  link_->client().set_state(name, text, kStateMs);
}

}  // namespace tessera::cluster
