#include "tessera/compiler/cost/machine_profile.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/strings.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using Json = nlohmann::ordered_json;

// Of what is no operator, as a copy: that of vectors.
ops::Arithmetic arithmetic_of(const std::string& op) {
  const auto* def = ops::OpRegistry::instance().find(op);
  return def != nullptr ? def->arithmetic : ops::Arithmetic::kVector;
}

constexpr JsonKind kProfileJson{.name = "machine profile"};
constexpr int64_t kMostRanks = 1000000;
constexpr int64_t kMostBytes = 1'000'000'000'000'000'000;
constexpr int64_t kMostPixels = 1'000'000'000'000;

// One JSON object of a profile, whose members are all read, and no others there but optional ones.
class Section {
 public:
  Section(const Json& json, std::string path, const std::vector<std::string>& members,
          const std::vector<std::string>& optional = {})
      : json_(json), path_(std::move(path)) {
    if (!json_.is_object()) throw InvalidArgument("{}: must be an object, got {}", path_, json_.dump());
    for (const auto& [name, value] : json_.items()) {
      auto known = members;
      known.insert(known.end(), optional.begin(), optional.end());
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        throw InvalidArgument("{}: \"{}\" is not known; there are: {}", path_, name, fmt::join(known, ", "));
      }
    }
    for (const auto& name : members) {
      if (!json_.contains(name)) throw InvalidArgument("{}: \"{}\" is missing", path_, name);
    }
  }

  bool has(const std::string& name) const { return json_.contains(name); }
  const Json& member(const std::string& name) const { return json_.at(name); }
  double positive(const std::string& name) const { return number(name, false); }
  double not_negative(const std::string& name) const { return number(name, true); }
  std::string path_of(const std::string& name) const { return path_ + ": " + name; }

 private:
  double number(const std::string& name, bool may_be_zero) const {
    const Json& value = member(name);
    const double found = value.is_number() ? value.get<double>() : std::nan("");
    if (std::isfinite(found) && (found > 0 || (may_be_zero && found == 0))) return found;
    throw InvalidArgument("{}: \"{}\" must be a number {} 0, got {}", path_, name,
                          may_be_zero ? "of at least" : "above", value.dump());
  }

  const Json& json_;
  std::string path_;
};

Link read_link(const Section& profile, const std::string& name) {
  const Section link(profile.member(name), profile.path_of(name), {"bytes_per_second", "latency_seconds"});
  return {link.positive("bytes_per_second"), link.not_negative("latency_seconds")};
}

// The names of an object's members, behind those that must be there.
std::vector<std::string> names_in(const Json& json, std::vector<std::string> names = {}) {
  if (!json.is_object()) return names;
  for (const auto& [name, value] : json.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Beside the dtypes: float32 whose operands may be rounded.
constexpr const char* kTf32 = "tf32";

// `tf32` gets what is said of that; null: nothing may be.
std::map<DType, double> read_flops(const Section& profile, const std::string& member,
                                   const std::vector<std::string>& required, double* tf32) {
  const Json& json = profile.member(member);
  const auto names = names_in(json, required);
  const Section flops(json, profile.path_of(member), names);
  std::map<DType, double> result;
  for (const auto& name : names) {
    double& speed = tf32 != nullptr && name == kTf32 ? *tf32 : result[parse_dtype(name)];
    speed = flops.positive(name);
  }
  return result;
}

Json flops_json(const std::map<DType, double>& speeds, double tf32) {
  Json json = Json::object();
  for (const auto& [dtype, flops] : speeds) json[to_string(dtype)] = flops;
  if (tf32 > 0) json[kTf32] = tf32;
  return json;
}

// Members whose names are whole numbers from `least` to `most`.
std::map<int64_t, std::string> read_numbers(const Section& profile, const std::string& member, const char* what,
                                            int64_t least, int64_t most) {
  std::map<int64_t, std::string> numbers;
  for (const auto& name : names_in(profile.member(member))) {
    const int64_t number = parse_int(name, profile.path_of(member));
    if (number < least || number > most) {
      throw InvalidArgument("{}: \"{}\" must be a number of {} from {} to {}", profile.path_of(member), name, what,
                            least, most);
    }
    numbers[number] = name;
  }
  return numbers;
}

std::map<int, Link> read_links(const Section& profile, const std::string& member) {
  const Section links(profile.member(member), profile.path_of(member), names_in(profile.member(member)));
  std::map<int, Link> result;
  for (const auto& [ranks, name] : read_numbers(profile, member, "ranks", 2, kMostRanks)) {
    result[static_cast<int>(ranks)] = read_link(links, name);
  }
  return result;
}

std::map<int64_t, double> read_cached(const Section& profile, const std::string& member, double memory) {
  const Section speeds(profile.member(member), profile.path_of(member), names_in(profile.member(member)));
  std::map<int64_t, double> result;
  for (const auto& [bytes, name] : read_numbers(profile, member, "bytes", 1, kMostBytes)) {
    result[bytes] = speeds.positive(name);
  }
  double least = memory;
  for (auto it = result.rbegin(); it != result.rend(); ++it) {
    if (it->second < least) {
      throw InvalidArgument("{}: {} bytes a second of {} bytes are less than {} of more bytes", profile.path_of(member),
                            shortest(it->second), it->first, shortest(least));
    }
    least = it->second;
  }
  return result;
}

std::vector<int64_t> read_sizes(const Section& section, const std::string& member) {
  const Json& json = section.member(member);
  std::vector<int64_t> sizes;
  const auto is_next = [&](const Json& size) {
    return size.is_number_integer() && size.get<int64_t>() > (sizes.empty() ? 0 : sizes.back()) &&
           size.get<int64_t>() <= kMostPixels;
  };
  for (const Json& size : json.is_array() ? json : Json::array()) {
    if (!is_next(size)) {
      sizes.clear();
      break;
    }
    sizes.push_back(size.get<int64_t>());
  }
  if (sizes.empty()) {
    throw InvalidArgument("{} must be whole numbers above 0, each above the one before, got {}",
                          section.path_of(member), json.dump());
  }
  return sizes;
}

ConvolutionShares read_convolutions(const Section& profile, const std::string& member) {
  const Section section(profile.member(member), profile.path_of(member),
                        {"in_channels", "out_channels", "pixels", "shares"});
  ConvolutionShares result{.in_channels = read_sizes(section, "in_channels"),
                           .out_channels = read_sizes(section, "out_channels"),
                           .pixels = read_sizes(section, "pixels")};
  const size_t count = result.in_channels.size() * result.out_channels.size() * result.pixels.size();
  const Json& shares = section.member("shares");
  std::vector<std::string> kinds;
  for (const auto& kind : convolution_kinds()) kinds.push_back(kind.kind());
  const Section by_kind(shares, section.path_of("shares"), {}, kinds);
  for (const auto& [kind, values] : shares.items()) {
    const auto is_share = [](const Json& share) {
      return share.is_number() && std::isfinite(share.get<double>()) && share.get<double>() > 0;
    };
    if (!values.is_array() || values.size() != count || !std::all_of(values.begin(), values.end(), is_share)) {
      throw InvalidArgument("{} must be {} numbers above 0: one for each in_channels, out_channels and pixels",
                            by_kind.path_of(kind), count);
    }
    result.by_kind[kind] = values.get<std::vector<double>>();
  }
  return result;
}

// The neighbours of a size among those that were measured, and how far it is from the first to the second.
struct Between {
  size_t below;
  size_t above;
  double part;
};

Between between(const std::vector<int64_t>& measured, int64_t size) {
  const auto above = std::lower_bound(measured.begin(), measured.end(), size);
  const auto at = static_cast<size_t>(above - measured.begin());
  if (above == measured.begin()) return {0, 0, 0};
  if (above == measured.end()) return {at - 1, at - 1, 0};
  const auto log = [](int64_t n) { return std::log(static_cast<double>(n)); };
  return {at - 1, at, (log(size) - log(measured[at - 1])) / (log(*above) - log(measured[at - 1]))};
}

Json link_json(const Link& link) {
  return {{"bytes_per_second", link.bytes_per_second}, {"latency_seconds", link.latency_seconds}};
}

}  // namespace

std::vector<ConvolutionSize> convolution_kinds() {
  std::vector<ConvolutionSize> kinds;
  for (const auto& [op, def] : ops::OpRegistry::instance().all()) {
    if (!def.convolution) continue;
    for (const bool is_pointwise : {false, true}) {
      for (const bool is_strided : {false, true}) {
        kinds.push_back({.op = op, .is_pointwise = is_pointwise, .is_strided = is_strided});
      }
    }
  }
  return kinds;
}

std::string ConvolutionSize::kind() const { return op + (is_pointwise ? " 1x1" : "") + (is_strided ? " strided" : ""); }

bool is_convolution(const std::string& op) { return arithmetic_of(op) == ops::Arithmetic::kConvolution; }

double ConvolutionShares::of(const ConvolutionSize& size) const {
  auto kind = by_kind.find(size.kind());
  if (kind == by_kind.end()) kind = by_kind.find(size.op);
  if (kind == by_kind.end()) return 1;
  const auto in = between(in_channels, size.in_channels);
  const auto out = between(out_channels, size.out_channels);
  const auto pixel = between(pixels, size.pixels);
  const auto log_at = [&](size_t i, size_t o, size_t p) {
    return std::log(kind->second[(i * out_channels.size() + o) * pixels.size() + p]);
  };
  const auto along = [](double below, double above, double part) { return below + part * (above - below); };
  const auto log_in_row = [&](size_t i, size_t o) {
    return along(log_at(i, o, pixel.below), log_at(i, o, pixel.above), pixel.part);
  };
  const auto log_in_plane = [&](size_t i) {
    return along(log_in_row(i, out.below), log_in_row(i, out.above), out.part);
  };
  return std::exp(along(log_in_plane(in.below), log_in_plane(in.above), in.part));
}

double MachineProfile::flops_of(DType dtype, const std::string& op) const {
  const auto arithmetic = arithmetic_of(op);
  const auto& own = arithmetic == ops::Arithmetic::kProduct       ? flops_per_second
                    : arithmetic == ops::Arithmetic::kConvolution ? convolution_flops_per_second
                                                                  : vector_flops_per_second;
  if (const auto it = own.find(dtype); it != own.end()) return it->second;
  const auto it = flops_per_second.find(dtype);
  return it != flops_per_second.end() ? it->second : flops_per_second.at(DType::kF32);
}

double MachineProfile::bytes_per_second_of(double bytes) const {
  const auto it = std::find_if(cached_bytes_per_second.begin(), cached_bytes_per_second.end(),
                               [&](const auto& level) { return bytes <= static_cast<double>(level.first); });
  return it != cached_bytes_per_second.end() ? it->second : memory_bytes_per_second;
}

double MachineProfile::copy_seconds(double bytes, int64_t piece_bytes) const {
  const double dense = bytes / bytes_per_second_of(bytes);
  const auto above = copied_bytes_per_second.lower_bound(piece_bytes);
  if (above == copied_bytes_per_second.end()) return dense;
  double speed = above->second;
  if (above != copied_bytes_per_second.begin() && above->first != piece_bytes) {
    const auto below = std::prev(above);
    const auto log = [](int64_t n) { return std::log(static_cast<double>(n)); };
    const double part = (log(piece_bytes) - log(below->first)) / (log(above->first) - log(below->first));
    speed = std::exp(std::log(below->second) + part * (std::log(above->second) - std::log(below->second)));
  }
  return std::max(dense, bytes / speed);
}

double MachineProfile::work_seconds(const std::string& op, DType dtype, double flops, double bytes) const {
  return kernel_overhead_seconds + std::max(flops / flops_of(dtype, op), bytes / bytes_per_second_of(bytes));
}

const Link& MachineProfile::intra_host_of(int64_t num_ranks) const {
  const auto it = std::find_if(intra_host_by_ranks.rbegin(), intra_host_by_ranks.rend(),
                               [&](const auto& link) { return link.first <= num_ranks; });
  return it != intra_host_by_ranks.rend() ? it->second : intra_host;
}

MachineProfile MachineProfile::with_tf32() const {
  if (tf32_flops_per_second <= 0) {
    throw InvalidArgument(
        "machine \"{}\": it is not known how fast it is with TF32: \"tf32\" is missing among its \"flops_per_second\"",
        name);
  }
  MachineProfile rounded = *this;
  rounded.name += ", TF32";
  // What is as fast as products of f32 because nothing else was said of it stays so fast.
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    rounded.vector_flops_per_second.try_emplace(dtype, flops_of(dtype, "copy"));
    if (dtype == DType::kF32) continue;
    rounded.flops_per_second.try_emplace(dtype, flops_of(dtype, "matmul"));
  }
  rounded.flops_per_second[DType::kF32] = tf32_flops_per_second;
  rounded.convolution_flops_per_second[DType::kF32] =
      tf32_convolution_flops_per_second > 0 ? tf32_convolution_flops_per_second : tf32_flops_per_second;
  return rounded;
}

MachineProfile example_profile() {
  return {.name = "example",
          .flops_per_second = {{DType::kF32, 60e12}, {DType::kBF16, 400e12}, {DType::kF16, 400e12}},
          .memory_bytes_per_second = 2e12,
          .kernel_overhead_seconds = 5e-6,
          .ranks_per_host = 8,
          .intra_host = {200e9, 5e-6},
          .inter_host = {25e9, 10e-6}};
}

MachineProfile parse_profile(std::string_view text, const std::string& file) {
  const Json json = parse_bounded_json<Json>(text, file, kProfileJson);
  if (json.is_object() && json.contains("convolution_shares")) {
    throw InvalidArgument(
        "{}: \"convolution_shares\" is of an older version, which knew one number of channels and no kinds of "
        "convolutions; measure the machine again (tessera calibrate), or take the member out",
        file);
  }
  const Section profile(json, file,
                        {"name", "flops_per_second", "memory_bytes_per_second", "kernel_overhead_seconds",
                         "ranks_per_host", "intra_host", "inter_host"},
                        {"convolution_flops_per_second", "convolutions", "vector_flops_per_second",
                         "cached_bytes_per_second", "copied_bytes_per_second", "rearranged_bytes_per_second",
                         "host_link", "intra_host_by_ranks", "communication_load", "memory_bytes", "disturbed_share"});
  const Json& name = profile.member("name");
  if (!name.is_string()) throw InvalidArgument("{}: \"name\" must be a string, got {}", file, name.dump());
  const double ranks = profile.positive("ranks_per_host");
  if (ranks != std::floor(ranks) || ranks > kMostRanks) {
    throw InvalidArgument("{}: \"ranks_per_host\" must be a whole number from 1 to {}, got {}", file, kMostRanks,
                          shortest(ranks));
  }
  const double memory = profile.has("memory_bytes") ? profile.positive("memory_bytes") : 0;
  if (memory > static_cast<double>(kMostBytes)) {
    throw InvalidArgument("{}: \"memory_bytes\" must be at most 1e18, got {}", file, shortest(memory));
  }
  double tf32 = 0;
  auto products = read_flops(profile, "flops_per_second", {to_string(DType::kF32)}, &tf32);
  MachineProfile result = {.name = name.get<std::string>(),
                           .flops_per_second = std::move(products),
                           .tf32_flops_per_second = tf32,
                           .memory_bytes_per_second = profile.positive("memory_bytes_per_second"),
                           .kernel_overhead_seconds = profile.not_negative("kernel_overhead_seconds"),
                           .ranks_per_host = static_cast<int>(ranks),
                           .intra_host = read_link(profile, "intra_host"),
                           .inter_host = read_link(profile, "inter_host"),
                           .memory_bytes = static_cast<int64_t>(memory)};
  if (profile.has("convolution_flops_per_second")) {
    result.convolution_flops_per_second =
        read_flops(profile, "convolution_flops_per_second", {}, &result.tf32_convolution_flops_per_second);
  }
  if (profile.has("vector_flops_per_second")) {
    result.vector_flops_per_second = read_flops(profile, "vector_flops_per_second", {}, nullptr);
  }
  if (profile.has("convolutions")) result.convolution_shares = read_convolutions(profile, "convolutions");
  if (profile.has("cached_bytes_per_second")) {
    result.cached_bytes_per_second = read_cached(profile, "cached_bytes_per_second", result.memory_bytes_per_second);
  }
  if (profile.has("copied_bytes_per_second")) {
    const std::string member = "copied_bytes_per_second";
    const Section speeds(profile.member(member), profile.path_of(member), names_in(profile.member(member)));
    for (const auto& [bytes, name] : read_numbers(profile, member, "bytes", 1, kMostBytes)) {
      result.copied_bytes_per_second[bytes] = speeds.positive(name);
    }
  }
  if (profile.has("rearranged_bytes_per_second")) {
    result.rearranged_bytes_per_second = profile.positive("rearranged_bytes_per_second");
  }
  const auto read_share = [&](const char* member, double& share) {
    if (!profile.has(member)) return;
    share = profile.not_negative(member);
    if (share > 1) throw InvalidArgument("{}: \"{}\" must be from 0 to 1, got {}", file, member, shortest(share));
  };
  read_share("communication_load", result.communication_load);
  read_share("disturbed_share", result.disturbed_share);
  if (profile.has("host_link")) result.host_link = read_link(profile, "host_link");
  if (profile.has("intra_host_by_ranks")) {
    result.intra_host_by_ranks = read_links(profile, "intra_host_by_ranks");
  }
  return result;
}

std::string to_json(const MachineProfile& profile) {
  Json json;
  json["name"] = profile.name;
  json["flops_per_second"] = flops_json(profile.flops_per_second, profile.tf32_flops_per_second);
  json["memory_bytes_per_second"] = profile.memory_bytes_per_second;
  json["kernel_overhead_seconds"] = profile.kernel_overhead_seconds;
  json["ranks_per_host"] = profile.ranks_per_host;
  json["intra_host"] = link_json(profile.intra_host);
  json["inter_host"] = link_json(profile.inter_host);
  const auto& convolutions = profile.convolution_flops_per_second;
  if (!convolutions.empty() || profile.tf32_convolution_flops_per_second > 0) {
    json["convolution_flops_per_second"] = flops_json(convolutions, profile.tf32_convolution_flops_per_second);
  }
  if (!profile.vector_flops_per_second.empty()) {
    json["vector_flops_per_second"] = flops_json(profile.vector_flops_per_second, 0);
  }
  if (const auto& shares = profile.convolution_shares; !shares.by_kind.empty()) {
    json["convolutions"] = {{"in_channels", shares.in_channels},
                            {"out_channels", shares.out_channels},
                            {"pixels", shares.pixels},
                            {"shares", shares.by_kind}};
  }
  for (const auto& [bytes, speed] : profile.cached_bytes_per_second) {
    json["cached_bytes_per_second"][std::to_string(bytes)] = speed;
  }
  for (const auto& [bytes, speed] : profile.copied_bytes_per_second) {
    json["copied_bytes_per_second"][std::to_string(bytes)] = speed;
  }
  if (profile.rearranged_bytes_per_second > 0) {
    json["rearranged_bytes_per_second"] = profile.rearranged_bytes_per_second;
  }
  if (profile.host_link.bytes_per_second > 0) json["host_link"] = link_json(profile.host_link);
  for (const auto& [ranks, link] : profile.intra_host_by_ranks) {
    json["intra_host_by_ranks"][std::to_string(ranks)] = link_json(link);
  }
  if (profile.communication_load > 0) json["communication_load"] = profile.communication_load;
  if (profile.memory_bytes > 0) json["memory_bytes"] = profile.memory_bytes;
  if (profile.disturbed_share > 0) json["disturbed_share"] = profile.disturbed_share;
  return json.dump(2) + "\n";
}

}  // namespace tessera::compiler
