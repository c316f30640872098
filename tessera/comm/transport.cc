#include "tessera/comm/transport.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15U + (hash << 6) + (hash >> 2);
  hash *= 0xBF58476D1CE4E5B9U;
  return hash ^ (hash >> 29);
}

int world_rank(const GroupInfo& group, int rank) { return group.ranks[static_cast<size_t>(rank)]; }

void note_mismatch(const CallHeader& ours, const GroupInfo& group, int peer, const JobState& job) {
  const int own = world_rank(group, group.rank);
  RankNotes* notes = job.notes_of(own);
  if (notes == nullptr) return;
  notes->set_broken_call({.wait = {.rank = own,
                                   .place = place_of(ours, group),
                                   .ranks = group.ranks,
                                   .waited_ms = 0,
                                   .peer = world_rank(group, peer)},
                          .line = {},
                          .is_mismatch = true});
}

}  // namespace

const char* to_string(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce: return "all_reduce";
    case CallKind::kAllGather: return "all_gather";
    case CallKind::kReduceScatter: return "reduce_scatter";
    case CallKind::kBroadcast: return "broadcast";
    case CallKind::kAllToAll: return "all_to_all";
    case CallKind::kSend: return "send";
    case CallKind::kBarrier: return "barrier";
  }
  return "?";
}

void CallHeader::set_who(std::string_view text) {
  const size_t length = std::min(text.size(), sizeof(who) - 1);
  std::memcpy(who, text.data(), length);
  std::memset(who + length, 0, sizeof(who) - length);
}

uint64_t CallHeader::digest() const {
  uint64_t hash =
      mix(mix(mix(mix(group, sequence), static_cast<uint64_t>(count)), counts_hash), static_cast<uint64_t>(root));
  hash = mix(hash, static_cast<uint64_t>(kind) << 16 | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(op));
  uint64_t words[sizeof(who) / sizeof(uint64_t) + 1] = {};
  std::memcpy(words, who, sizeof(who));
  for (const uint64_t word : words) hash = mix(hash, word);
  return hash;
}

std::string CallHeader::label() const {
  const std::string_view name(who);
  const std::string_view verb = to_string(kind);
  if (name.empty()) return fmt::format("{} #{}", verb, sequence);
  if (name.starts_with(verb) || kind == CallKind::kSend) return fmt::format("{} #{}", name, sequence);
  return fmt::format("{} \"{}\" #{}", verb, name, sequence);
}

std::string CallHeader::description() const {
  switch (kind) {
    case CallKind::kBarrier: return label();
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
      return fmt::format("{} ({} of {} {})", label(), tessera::to_string(op), count, tessera::to_string(dtype));
    case CallKind::kBroadcast:
      return fmt::format("{} ({} {} from rank {} of the group)", label(), count, tessera::to_string(dtype), root);
    default: return fmt::format("{} ({} {})", label(), count, tessera::to_string(dtype));
  }
}

uint64_t GroupInfo::id() const {
  uint64_t hash = mix(mix(0x7465737365726121U, static_cast<uint64_t>(number)), static_cast<uint64_t>(part));
  for (const char c : name) hash = mix(hash, static_cast<unsigned char>(c));
  for (const int rank_of_member : ranks) hash = mix(hash, static_cast<uint64_t>(rank_of_member));
  return hash;
}

std::shared_ptr<void> allocate_pages(size_t bytes) {
  void* memory = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw IoError("cannot have {} bytes of memory: {}", bytes, std::strerror(errno));
  return {memory, [bytes](void* p) { munmap(p, std::max<size_t>(bytes, 1)); }};
}

std::string place_of(const CallHeader& call, const GroupInfo& group) {
  return fmt::format("{} of group \"{}\"", call.label(), group.name);
}

void throw_late(const CallHeader& call, const GroupInfo& group, int peer, int64_t waited_ms, std::string_view detail) {
  throw PeerSilence(
      fmt::format("{}: rank {} heard nothing from rank {} for {} ms{}{}; where that rank only works for longer, raise "
                  "the deadline: "
                  "tessera run --timeout, or TESSERA_TIMEOUT_MS",
                  place_of(call, group), world_rank(group, group.rank), world_rank(group, peer), waited_ms,
                  detail.empty() ? "" : "; ", detail));
}

void throw_crossed(const CallHeader& call, const GroupInfo& group, int peer, std::string_view other) {
  const int rank = world_rank(group, group.rank);
  throw IoError(
      "{}: rank {} waits for rank {}, which waits for rank {} in {}: neither goes on; every rank must make the same "
      "calls, of train, eval, predict or save, in the same order",
      place_of(call, group), rank, world_rank(group, peer), rank, other);
}

void throw_left(const CallHeader& call, const GroupInfo& group, int peer) {
  throw IoError("{}: rank {} waits for rank {}, which has ended without making this call", place_of(call, group),
                world_rank(group, group.rank), world_rank(group, peer));
}

void throw_peer_failure(const CallHeader& call, const GroupInfo& group, const JobState& job) {
  const int failed = job.failed_rank();
  throw PeerFailure(
      failed, fmt::format("stopped in {} because rank {} failed: {}", place_of(call, group), failed, job.message()));
}

void check_same_call(const CallHeader& ours, const CallHeader& theirs, const GroupInfo& group, int peer,
                     const JobState& job) {
  if (theirs.group != ours.group) {
    note_mismatch(ours, group, peer, job);
    throw IoError(
        "{}: rank {} means another group at this place; every rank must create the same groups in the same "
        "order",
        place_of(ours, group), world_rank(group, peer));
  }
  if (theirs.sequence != ours.sequence || theirs.kind != ours.kind || std::strcmp(theirs.who, ours.who) != 0 ||
      theirs.dtype != ours.dtype || theirs.op != ours.op || theirs.root != ours.root || theirs.count != ours.count) {
    note_mismatch(ours, group, peer, job);
    throw IoError(
        "group \"{}\": rank {} makes another call than rank {}: {} against {}; every rank of a group must "
        "make the same calls in the same order",
        group.name, world_rank(group, peer), world_rank(group, group.rank), theirs.description(), ours.description());
  }
  if (theirs.counts_hash != ours.counts_hash) {
    note_mismatch(ours, group, peer, job);
    throw IoError("{}: rank {} and rank {} state different counts per rank", place_of(ours, group),
                  world_rank(group, peer), world_rank(group, group.rank));
  }
}

void check_same_bytes(const CallHeader& ours, const GroupInfo& group, int peer, int64_t expected, int64_t offered) {
  if (offered == expected) return;
  throw IoError("{}: rank {} expects {} bytes from rank {}, which offers {}", place_of(ours, group),
                world_rank(group, group.rank), expected, world_rank(group, peer), std::max<int64_t>(offered, 0));
}

void check_message(const CallHeader& ours, const CallHeader& theirs, const GroupInfo& group, int peer,
                   const JobState& job) {
  if (theirs.group == ours.group && theirs.sequence == ours.sequence && theirs.dtype == ours.dtype &&
      theirs.count == ours.count) {
    return;
  }
  note_mismatch(ours, group, peer, job);
  throw IoError("{}: rank {} expects {} {} from rank {}, which sends {} {} in {}", place_of(ours, group),
                world_rank(group, group.rank), ours.count, tessera::to_string(ours.dtype), world_rank(group, peer),
                theirs.count, tessera::to_string(theirs.dtype), theirs.label());
}

}  // namespace tessera::comm
