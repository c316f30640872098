#include "tessera/checkpoint/read/inspect.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/manifest/present_files.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  const StoredEntry* entry;
  std::string file;  // "" where the values of all files are put together
  uint32_t crc32c;
  bool is_damaged;  // the manifest has another checksum
};

// A file as far as it can be read, with whatever manifest can be parsed.
struct View {
  FileVerification verification;
  std::optional<Manifest> manifest;
  std::vector<CkptFile> files;           // not verified
  std::optional<Checkpoint> checkpoint;  // verified: entries as they are loaded
  std::vector<Row> rows;
  int64_t num_files = 0;
  int64_t size_bytes = 0;  // of all of them
  int64_t num_elements = 0;
};

// By the slices of one of the manifest's files.
bool is_damaged(const std::optional<Manifest>& manifest, const std::string& file, const StoredEntry& entry,
                uint32_t crc32c) {
  if (!manifest) return false;
  for (const auto& tensor : manifest->tensors) {
    if (tensor.name != entry.name) continue;
    for (const auto& slice : tensor.slices) {
      if (manifest->files[static_cast<size_t>(slice.file)].name == file) return slice.crc32c != crc32c;
    }
  }
  return false;
}

void add_rows(View& view, const std::vector<StoredEntry>& entries, const std::string& file, bool verified) {
  for (const auto& entry : entries) {
    Row row{&entry, view.num_files > 1 && !verified ? file : "", entry.crc32c(), false};
    row.is_damaged = !verified && is_damaged(view.manifest, file, entry, row.crc32c);
    if (!entry.is_text) view.num_elements += entry.shape.num_elements();
    view.rows.push_back(std::move(row));
  }
}

// One that has grown, by terabytes maybe, must not be mapped.
bool has_grown(FileSystem& files, const std::string& path, const std::optional<Manifest>& manifest) {
  if (!manifest) return false;
  return std::any_of(manifest->files.begin(), manifest->files.end(), [&](const ManifestFile& file) {
    return file.name == base_name(path) && files.size_bytes(path) > file.size_bytes;
  });
}

View look(FileSystem& files, const std::string& path) {
  View view;
  view.verification = verify(files, path);
  view.manifest = view.verification.manifest;
  if (!view.manifest) view.manifest = readable_manifest(files, path);
  const auto paths = present_files(files, path, view.manifest);
  view.num_files = std::ssize(paths);
  view.size_bytes = total_size_bytes(files, paths);
  if (view.verification.state == Verified::kYes) {
    try {
      view.checkpoint.emplace(open_files(files, path, view.verification.manifest), path, view.verification.manifest);
      add_rows(view, view.checkpoint->entries(), base_name(path), /*verified=*/true);
    } catch (const InvalidArgument&) {  // encrypted
    }
    return view;
  }
  for (const auto& file : paths) {
    if (has_grown(files, file, view.manifest)) continue;
    try {
      view.files.push_back(CkptFile::open(files, file));
    } catch (const InvalidArgument&) {  // the verification's problem says so
    }
  }
  for (const auto& file : view.files) add_rows(view, file.entries(), base_name(file.path()), /*verified=*/false);
  return view;
}

// As `ls` counts: a value of which several files hold slices is one.
size_t num_values(const View& view) {
  std::set<std::string> names;
  for (const auto& row : view.rows) names.insert(row.entry->name);
  return names.size();
}

std::string time_text(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  if (::gmtime_r(&seconds, &utc) == nullptr) return fmt::format("{} ms", unix_ms);
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", utc);
}

// Of a text or a 0-d tensor; "" of others.
std::string value_text(const StoredEntry& entry) {
  if (entry.is_text) {
    auto text = entry.read_text();
    const bool is_long = text.size() > 60;
    if (is_long) text = text.substr(0, 57);
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace) + (is_long ? "..." : "");
  }
  if (entry.shape.ndim() > 0) return "";
  const double value = entry.read().item();
  if (entry.dtype == DType::kF64) return shortest(value);
  return is_floating(entry.dtype) ? shortest(static_cast<float>(value)) : fmt::format("{:.0f}", value);
}

std::string state_line(const FileVerification& verification) {
  switch (verification.state) {
    case Verified::kYes: return "verified: yes, every byte is as it was written";
    case Verified::kNoManifest: return "verified: no manifest beside it, so nothing could be verified";
    case Verified::kNo: break;
  }
  return "verified: NO: " + verification.problem;
}

std::string info_lines(const CheckpointInfo& info) {
  std::string text =
      fmt::format("epoch {}, step {} of it, step {} in all\n", info.epoch, info.step_in_epoch, info.step);
  if (info.saved_at_ms != 0) text += fmt::format("saved {}\n", time_text(info.saved_at_ms));
  if (!info.job_name.empty()) text += fmt::format("training \"{}\"\n", info.job_name);
  text += fmt::format("job \"{}\", {} rank{}, seed {}\n", info.job_id, info.world_size, info.world_size == 1 ? "" : "s",
                      info.seed);
  if (!info.network_name.empty() || !info.network_hash.empty()) {
    text += fmt::format("network {}\n", trim(info.network_name + " " + info.network_hash));
  }
  if (!info.network_operators.empty()) text += fmt::format("operators: {}\n", info.network_operators);
  if (!info.optimizer.empty()) text += fmt::format("optimizer {}\n", info.optimizer);
  return text;
}

// What is not finite becomes null: JSON has no word for it.
Json scalar_json(const StoredEntry& entry) {
  const auto value = entry.read();
  if (entry.dtype == DType::kBool) return value.item() != 0;
  if (entry.dtype == DType::kU64) return value.values<uint64_t>()[0];
  if (is_integer(entry.dtype)) return value.cast(DType::kI64).values<int64_t>()[0];
  return value.item();
}

}  // namespace

Inspection inspect_table(FileSystem& files, const std::string& given) {
  const auto path = checkpoint_of_file(files, given);
  const auto view = look(files, path);
  const auto in_files = view.num_files > 1 ? fmt::format(" in {} files", view.num_files) : "";
  std::string text = fmt::format("{}: {}{}, {} values, {} elements\n{}\n", path, format_bytes(view.size_bytes),
                                 in_files, num_values(view), view.num_elements, state_line(view.verification));
  if (view.manifest) text += info_lines(view.manifest->info);
  size_t name_width = 4;
  size_t type_width = 4;
  for (const auto& row : view.rows) {
    name_width = std::max(name_width, row.entry->name.size());
    type_width = std::max(type_width, row.entry->type_text().size());
  }
  if (!view.rows.empty()) {
    text +=
        fmt::format("\n{:{}}  {:{}}  {:>12}  {:8}  value\n", "name", name_width, "type", type_width, "bytes", "crc32c");
  }
  for (const auto& row : view.rows) {
    auto line = fmt::format("{:{}}  {:{}}  {:>12}  {:08x}  {}", row.entry->name, name_width, row.entry->type_text(),
                            type_width, row.entry->size_bytes, row.crc32c, value_text(*row.entry));
    if (row.is_damaged) line += "  DAMAGED";
    if (!row.file.empty()) line += "  in " + row.file;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return {view.verification.state, view.verification.problem, text};
}

Inspection inspect_json(FileSystem& files, const std::string& given) {
  const auto path = checkpoint_of_file(files, given);
  const auto view = look(files, path);
  const auto state = view.verification.state;
  Json json{{"file", path},
            {"size_bytes", view.size_bytes},
            {"num_files", view.num_files},
            {"state", state == Verified::kYes  ? "verified"
                      : state == Verified::kNo ? "damaged"
                                               : "no manifest"}};
  if (!view.verification.problem.empty()) json["problem"] = view.verification.problem;
  if (view.manifest) {
    const auto& info = view.manifest->info;
    json["manifest"] = {{"epoch", info.epoch},
                        {"step_in_epoch", info.step_in_epoch},
                        {"step", info.step},
                        {"saved_at_ms", info.saved_at_ms},
                        {"job_id", info.job_id},
                        {"world_size", info.world_size},
                        {"network", {{"name", info.network_name}, {"hash", info.network_hash}}},
                        {"random", {{"seed", info.seed}, {"state", info.random_state}}},
                        {"data_position", info.data_position}};
    auto& members = json["manifest"];
    if (!info.job_name.empty()) members["job_name"] = info.job_name;
    if (!info.training_id.empty()) members["training_id"] = info.training_id;
    if (!info.network_operators.empty()) members["network"]["operators"] = info.network_operators;
    if (!info.optimizer.empty()) members["optimizer"] = {{"name", info.optimizer}};
    if (info.stage) members["stage"] = {{"index", info.stage->index}, {"count", info.stage->count}};
    if (info.generation) members["generation"] = *info.generation;
    if (info.rows_per_batch > 0) members["rows_per_batch"] = info.rows_per_batch;
  }
  json["num_elements"] = view.num_elements;
  json["values"] = Json::array();
  for (const auto& row : view.rows) {
    const auto& entry = *row.entry;
    Json value{{"name", entry.name}, {"dtype", entry.is_text ? "str" : to_string(entry.dtype)}};
    if (!entry.is_text) value["shape"] = entry.shape.to_vector();
    value["size_bytes"] = entry.size_bytes;
    const bool is_in_one_file = view.num_files == 1 || !row.file.empty();
    if (is_in_one_file && !entry.pieces.empty()) value["offset"] = entry.offset;
    value["crc32c"] = fmt::format("{:08x}", row.crc32c);
    if (entry.appended) value["appended"] = true;
    if (row.is_damaged) value["damaged"] = true;
    if (!row.file.empty()) value["file"] = row.file;
    if (entry.is_text) {
      value["value"] = entry.read_text();
    } else if (entry.shape.ndim() == 0) {
      value["value"] = scalar_json(entry);
    }
    json["values"].push_back(std::move(value));
  }
  return {state, view.verification.problem, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

}  // namespace tessera::checkpoint
