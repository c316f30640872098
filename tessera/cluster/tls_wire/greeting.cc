#include "tessera/cluster/tls_wire/greeting.h"

#include <fmt/format.h>

#include "tessera/base/printable.h"

namespace tessera::cluster {
namespace {

constexpr uint32_t kVersion = 1;

void append(std::string& text, uint64_t number, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) text.push_back(static_cast<char>(number >> (8 * i) & 0xFFU));
}

uint64_t take(std::string_view& text, size_t num_bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < num_bytes; ++i)
    number |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  text.remove_prefix(num_bytes);
  return number;
}

std::string hash_of_job(const WirePlace& place) { return place.secret.hash({"tessera wire job 1", place.job_id}); }

// Of everything that stands in front of it.
std::string proof_of(const WirePlace& place, std::string_view said, std::string_view binding) {
  return place.secret.hash({"tessera wire 1", said, binding});
}

}  // namespace

std::string print_greeting(const WirePlace& place, int from, int to, std::string_view binding) {
  std::string text;
  append(text, kVersion, 4);
  append(text, static_cast<uint64_t>(place.channel), 4);
  append(text, static_cast<uint64_t>(from), 4);
  append(text, static_cast<uint64_t>(to), 4);
  append(text, static_cast<uint64_t>(place.size), 4);
  append(text, place.generation, 8);
  text += hash_of_job(place);
  text += proof_of(place, text, binding);
  return text;
}

GreetingCheck check_greeting(const WirePlace& place, int to, std::string_view binding, std::string_view text) {
  const auto refuse = [](std::string reason) { return GreetingCheck{-1, std::move(reason)}; };
  if (text.size() != kGreetingBytes) return refuse("it does not greet as a rank does");
  const std::string_view said = text.substr(0, kGreetingBytes - comm::kHashBytes);
  const std::string_view proof = text.substr(said.size());
  const uint64_t version = take(text, 4);
  const uint64_t channel = take(text, 4);
  const uint64_t from = take(text, 4);
  const uint64_t own = take(text, 4);
  const uint64_t size = take(text, 4);
  const uint64_t generation = take(text, 8);
  if (version != kVersion) return refuse(fmt::format("it speaks version {} of the wire, not {}", version, kVersion));
  if (generation != place.generation) {
    return refuse(fmt::format("it is of generation {}, not {}", generation, place.generation));
  }
  if (!comm::is_equal_hash(text.substr(0, comm::kHashBytes), hash_of_job(place))) return refuse("it is of another job");
  if (size != static_cast<uint64_t>(place.size)) {
    return refuse(fmt::format("it is of a job of {}, not {}", plural(static_cast<int64_t>(size), "rank"), place.size));
  }
  if (from >= size || from == static_cast<uint64_t>(to) || own != static_cast<uint64_t>(to) ||
      channel != static_cast<uint64_t>(place.channel)) {
    return refuse(fmt::format("it says that it is rank {} and seeks rank {}, channel {}", from, own, channel));
  }
  if (!comm::is_equal_hash(proof, proof_of(place, said, binding))) return refuse("it does not prove who it is");
  return {static_cast<int>(from), ""};
}

}  // namespace tessera::cluster
