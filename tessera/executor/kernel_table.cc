#include "tessera/executor/kernel_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"

namespace tessera::executor {
namespace {

using Json = nlohmann::ordered_json;

// Grows with every change of the file's form, and with every change of the candidates that makes old times worthless.
constexpr int kFormat = 3;
constexpr JsonKind kTableJson{.name = "table of kernels"};
// A machine that disturbs a measurement so many times in a row is always busy: the measurement counts.
constexpr int kMaxDisturbed = 3;

Json to_json(const std::vector<TensorView>& views) {
  Json list = Json::array();
  for (const TensorView& view : views) {
    list.push_back({{"type", view.type().to_string()}, {"strides", view.strides.to_vector()}});
  }
  return list;
}

std::vector<TensorView> views_from(const Json& list) {
  std::vector<TensorView> views;
  for (const Json& item : list) {
    const Type type = parse_type(item.at("type").get<std::string>());
    const Strides strides(item.at("strides").get<std::vector<int64_t>>());
    if (strides.ndim() != type.shape.ndim()) throw InvalidArgument("{} has strides {}", type, strides);
    views.emplace_back(nullptr, type.dtype, type.shape, strides);
  }
  return views;
}

Json to_json(const KernelMeasurement& measurement) {
  const KernelRequest& request = measurement.request;
  Json candidates = Json::array();
  for (const TimedKernel& candidate : measurement.candidates) {
    candidates.push_back({{"kernel", candidate.name}, {"microseconds", candidate.microseconds}});
  }
  return {{"op", request.op},
          {"inputs", to_json(request.inputs)},
          {"outputs", to_json(request.outputs)},
          {"attributes", request.attributes.to_string()},
          {"threads", request.num_threads},
          {"chosen", measurement.chosen},
          {"disturbed", measurement.num_disturbed},
          {"candidates", std::move(candidates)}};
}

KernelMeasurement measurement_from(const Json& json) {
  KernelMeasurement measurement;
  KernelRequest& request = measurement.request;
  request.op = json.at("op").get<std::string>();
  request.inputs = views_from(json.at("inputs"));
  request.outputs = views_from(json.at("outputs"));
  const auto attributes = json.at("attributes").get<std::string>();
  if (!attributes.empty()) request.attributes = parse_attributes(attributes);
  request.num_threads = json.at("threads").get<int>();
  for (const Json& candidate : json.at("candidates")) {
    measurement.candidates.push_back(
        {candidate.at("kernel").get<std::string>(), candidate.at("microseconds").get<double>()});
  }
  measurement.chosen = json.at("chosen").get<std::string>();
  measurement.num_disturbed = json.at("disturbed").get<int>();
  return measurement;
}

// A second measurement of what was disturbed at the first, `earlier`. Others can only make a kernel slower: where both
// were disturbed the faster times count; a candidate that only the first has tried was hopeless then.
void join(const KernelMeasurement& earlier, KernelMeasurement& later) {
  if (later.num_disturbed == 0) return;
  later.num_disturbed += earlier.num_disturbed;
  for (const TimedKernel& old : earlier.candidates) {
    for (TimedKernel& candidate : later.candidates) {
      if (candidate.name == old.name) candidate.microseconds = std::min(candidate.microseconds, old.microseconds);
    }
  }
  later.chosen = fastest(later.candidates);
}

}  // namespace

std::string describe(const KernelRequest& request) {
  const auto operands = [](const std::vector<TensorView>& views) {
    std::string text;
    for (const TensorView& view : views) {
      text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", view.type(), view.strides);
    }
    return text;
  };
  return fmt::format("{}({}) -> {} {} on {} threads", request.op, operands(request.inputs), operands(request.outputs),
                     request.attributes.to_string(), request.num_threads);
}

const KernelMeasurement* KernelTable::find(const KernelRequest& request) const {
  const auto it = measurements_.find(describe(request));
  return it == measurements_.end() || doubtful_.contains(it->first) ? nullptr : &it->second;
}

void KernelTable::add(KernelMeasurement measurement) {
  const auto key = describe(measurement.request);
  if (doubtful_.erase(key) > 0) join(measurements_.at(key), measurement);
  measurements_.insert_or_assign(key, std::move(measurement));
}

std::string KernelTable::to_json() const {
  Json list = Json::array();
  for (const auto& [key, measurement] : measurements_) list.push_back(executor::to_json(measurement));
  const Json json = {{"format", kFormat}, {"machine", machine_}, {"kernels", std::move(list)}};
  return json.dump(1) + "\n";
}

void KernelTable::merge_json(std::string_view text) {
  std::vector<KernelMeasurement> found;
  try {
    const Json json = parse_bounded_json<Json>(text, "it is not a table of kernels", kTableJson);
    const auto format = json.at("format").get<int>();
    if (format != kFormat) throw InvalidArgument("it has format {}, this program knows {}", format, kFormat);
    const auto machine = json.at("machine").get<std::string>();
    if (machine != machine_) throw InvalidArgument("it is of \"{}\", this machine is \"{}\"", machine, machine_);
    for (const Json& item : json.at("kernels")) found.push_back(measurement_from(item));
  } catch (const Json::exception& error) {
    throw InvalidArgument("it is not a table of kernels: {}", plain_json_words(error.what()));
  }
  for (auto& measurement : found) add(std::move(measurement));
}

std::string KernelTable::path_in(const std::string& directory) const {
  const uint32_t machine = crc32c(std::as_bytes(std::span(machine_.data(), machine_.size())));
  return join_path(directory, fmt::format("kernels-{:08x}.json", machine));
}

void KernelTable::load(FileSystem& file_system, const std::string& directory) {
  const auto path = path_in(directory);
  try {
    if (!file_system.exists(path)) return;
    merge_json(read_settings(file_system, path, "kernel table"));
    for (const auto& [key, measurement] : measurements_) {
      if (measurement.num_disturbed > 0 && measurement.num_disturbed < kMaxDisturbed) doubtful_.insert(key);
    }
  } catch (const Error& error) {
    log_warning("{} cannot be used, kernels are measured again: {}", path, error.what());
  }
}

void KernelTable::save(FileSystem& file_system, const std::string& directory) {
  if (save_failed_) return;
  const auto path = path_in(directory);
  KernelTable all(machine_);
  try {
    if (file_system.exists(path)) all.merge_json(read_settings(file_system, path, "kernel table"));
  } catch (const Error&) {
    all.measurements_.clear();  // what cannot be used is replaced
  }
  for (const auto& [key, measurement] : measurements_) all.measurements_.insert_or_assign(key, measurement);
  try {
    file_system.create_directories(directory);
    file_system.write_atomically(path, all.to_json());
  } catch (const Error& error) {
    save_failed_ = true;
    log_warning("measured kernels are not remembered: {}", error.what());
  }
}

}  // namespace tessera::executor
