#include "tessera/compiler/machine_profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::compiler {
namespace {

using Json = nlohmann::ordered_json;

// One JSON object of a profile, whose members are all read, and no others there.
class Section {
 public:
  Section(const Json& json, std::string path, const std::vector<std::string>& members)
      : json_(json), path_(std::move(path)) {
    if (!json_.is_object()) throw InvalidArgument("{}: must be an object, got {}", path_, json_.dump());
    for (const auto& [name, value] : json_.items()) {
      if (std::find(members.begin(), members.end(), name) == members.end()) {
        throw InvalidArgument("{}: \"{}\" is not known; there are: {}", path_, name, fmt::join(members, ", "));
      }
    }
    for (const auto& name : members) {
      if (!json_.contains(name)) throw InvalidArgument("{}: \"{}\" is missing", path_, name);
    }
  }

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

std::map<DType, double> read_flops(const Section& profile) {
  const Json& json = profile.member("flops_per_second");
  std::vector<std::string> names = {to_string(DType::kF32)};
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      if (name != names[0]) names.push_back(name);
    }
  }
  const Section flops(json, profile.path_of("flops_per_second"), names);
  std::map<DType, double> result;
  for (const auto& name : names) result[parse_dtype(name)] = flops.positive(name);
  return result;
}

Json link_json(const Link& link) {
  return {{"bytes_per_second", link.bytes_per_second}, {"latency_seconds", link.latency_seconds}};
}

}  // namespace

double MachineProfile::flops_of(DType dtype) const {
  const auto it = flops_per_second.find(dtype);
  return it != flops_per_second.end() ? it->second : flops_per_second.at(DType::kF32);
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
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw InvalidArgument("{}: not JSON: {}", file, error.what());
  }
  const Section profile(json, file,
                        {"name", "flops_per_second", "memory_bytes_per_second", "kernel_overhead_seconds",
                         "ranks_per_host", "intra_host", "inter_host"});
  const Json& name = profile.member("name");
  if (!name.is_string()) throw InvalidArgument("{}: \"name\" must be a string, got {}", file, name.dump());
  const double ranks = profile.positive("ranks_per_host");
  if (ranks != std::floor(ranks) || ranks > 1e6) {
    throw InvalidArgument("{}: \"ranks_per_host\" must be a whole number from 1 to 1000000, got {}", file,
                          shortest(ranks));
  }
  return {.name = name.get<std::string>(),
          .flops_per_second = read_flops(profile),
          .memory_bytes_per_second = profile.positive("memory_bytes_per_second"),
          .kernel_overhead_seconds = profile.not_negative("kernel_overhead_seconds"),
          .ranks_per_host = static_cast<int>(ranks),
          .intra_host = read_link(profile, "intra_host"),
          .inter_host = read_link(profile, "inter_host")};
}

std::string to_json(const MachineProfile& profile) {
  Json json;
  json["name"] = profile.name;
  for (const auto& [dtype, flops] : profile.flops_per_second) json["flops_per_second"][to_string(dtype)] = flops;
  json["memory_bytes_per_second"] = profile.memory_bytes_per_second;
  json["kernel_overhead_seconds"] = profile.kernel_overhead_seconds;
  json["ranks_per_host"] = profile.ranks_per_host;
  json["intra_host"] = link_json(profile.intra_host);
  json["inter_host"] = link_json(profile.inter_host);
  return json.dump(2) + "\n";
}

}  // namespace tessera::compiler
