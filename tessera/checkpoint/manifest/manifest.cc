#include "tessera/checkpoint/manifest/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/text_file.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/manifest/json_field.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera checkpoint manifest";
// Version 1 knew neither optimizer nor training, times before 1970 nor Tessera's own form of encrypted files.
constexpr int64_t kVersion = 2;
// The text is one JSON object, {"crc32c":"xxxxxxxx","manifest":BODY}; the checksum covers BODY's bytes.
constexpr std::string_view kBeforeCrc = "{\"crc32c\":\"";
constexpr std::string_view kAfterCrc = "\",\"manifest\":\n";
constexpr std::string_view kEnd = "\n}\n";
constexpr size_t kCrcDigits = 8;
constexpr size_t kBodyStart = kBeforeCrc.size() + kCrcDigits + kAfterCrc.size();

// A manifest of a hundred thousand tensors has some 20 MB.
constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr TextKind kTextKind = {
    .name = "manifest",
    .max_bytes = kMaxBytes,
    .remedy = "nobody has saved it so; take another checkpoint, or move it away and load the values unverified"};

std::string hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text.data(), text.size()))); }

Json shape_json(const Shape& shape) { return Json(shape.to_vector()); }

Json slice_json(const ManifestSlice& slice) {
  Json json{{"file", slice.file},
            {"offset", shape_json(slice.offset)},
            {"shape", shape_json(slice.shape)},
            {"size_bytes", slice.size_bytes},
            {"crc32c", hex(slice.crc32c)}};
  if (slice.hash) json["hash"] = fmt::format("{:016x}", *slice.hash);
  return json;
}

Json tensor_json(const ManifestTensor& tensor) {
  Json json{{"name", tensor.name}, {"dtype", tensor.is_text ? "str" : to_string(tensor.dtype)}};
  if (!tensor.is_text) json["shape"] = shape_json(tensor.shape);
  if (tensor.appended) json["appended"] = true;
  json["slices"] = Json::array();
  for (const auto& slice : tensor.slices) json["slices"].push_back(slice_json(slice));
  return json;
}

// One member a line, one tensor a line: a person can read it, and diff can compare two.
std::string body_text(const Manifest& manifest) {
  const auto& info = manifest.info;
  std::string text = "{";
  const auto member = [&](std::string_view name, const Json& value) {
    text += fmt::format("{}\n\"{}\":{}", text.size() > 1 ? "," : "", name, value.dump());
  };
  const auto list = [&](std::string_view name, const auto& items, auto&& to_json) {
    text += fmt::format(",\n\"{}\":[", name);
    for (size_t i = 0; i < items.size(); ++i) text += (i > 0 ? ",\n" : "\n") + to_json(items[i]).dump();
    text += "]";
  };
  member("format", kFormat);
  member("version", kVersion);
  member("epoch", info.epoch);
  member("step_in_epoch", info.step_in_epoch);
  member("step", info.step);
  member("saved_at_ms", info.saved_at_ms);
  member("job_id", info.job_id);
  if (!info.job_name.empty()) member("job_name", info.job_name);
  if (!info.training_id.empty()) member("training_id", info.training_id);
  member("world_size", info.world_size);
  if (info.stage) member("stage", {{"index", info.stage->index}, {"count", info.stage->count}});
  if (info.generation) member("generation", *info.generation);
  Json network{{"name", info.network_name}, {"hash", info.network_hash}};
  if (!info.network_operators.empty()) network["operators"] = info.network_operators;
  member("network", network);
  if (!info.optimizer.empty()) member("optimizer", {{"name", info.optimizer}});
  member("random", {{"seed", info.seed}, {"state", info.random_state}});
  member("data_position", info.data_position);
  if (info.rows_per_batch > 0) member("rows_per_batch", info.rows_per_batch);
  if (info.values_elsewhere > 0) member("values_elsewhere", info.values_elsewhere);
  list("files", manifest.files, [](const ManifestFile& file) {
    Json json{{"name", file.name}, {"size_bytes", file.size_bytes}, {"crc32c", hex(file.crc32c)}};
    if (!file.encryption.empty()) json["encryption"] = file.encryption;
    return json;
  });
  list("tensors", manifest.tensors, tensor_json);
  return text + "}";
}

using Field = JsonField;

// All digits of an unsigned integer, leading zeros too.
template <typename T>
T read_hex(const Field& field, const char* how_many) {
  const auto digits = field.text();
  T value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      digits != fmt::format("{:0{}x}", value, 2 * sizeof(T))) {
    field.fail(fmt::format("must be {} lower-case hexadecimal digits", how_many));
  }
  return value;
}

uint32_t read_crc(const Field& field) { return read_hex<uint32_t>(field, "eight"); }

Shape read_shape(const Field& field) {
  Shape shape;
  for (const auto& item : field.items(kMaxNdim)) shape.push_back(item.count());
  return shape;
}

constexpr size_t kMaxTensors = size_t{1} << 20;
constexpr size_t kMaxFiles = size_t{1} << 20;
constexpr size_t kMaxSlices = size_t{1} << 20;

// nullopt when it does not fit an int64.
std::optional<int64_t> block_bytes(const Shape& shape, DType dtype) {
  auto bytes = static_cast<int64_t>(size_bytes(dtype));
  bool empty = false;
  for (const int64_t dim : shape) {
    empty |= dim == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

ManifestFile read_file(const Field& field, int64_t version) {
  ManifestFile file{
      .name = field["name"].text(), .size_bytes = field["size_bytes"].count(), .crc32c = read_crc(field["crc32c"])};
  // A manifest must not reach out of its directory.
  if (file.name.empty() || file.name == "." || file.name == ".." || file.name.find('/') != std::string::npos ||
      file.name.find('\0') != std::string::npos) {
    field["name"].fail("must be the plain name of a file beside the manifest");
  }
  if (field.has("encryption")) {
    file.encryption = field["encryption"].text();
    const auto is = [&](std::string_view mode) { return file.encryption == mode; };
    if (version == 1) {
      if (!is(kAesGcm) && !is(kAesCbc)) field["encryption"].fail("must be \"AES-GCM\" or \"AES-CBC\"");
      if (is(kAesGcm)) file.encryption = kReferenceAesGcm;
    } else if (!is(kAesGcm) && !is(kReferenceAesGcm) && !is(kAesCbc)) {
      field["encryption"].fail("must be \"AES-GCM\", \"AES-GCM/reference\" or \"AES-CBC\"");
    }
  }
  return file;
}

CheckpointInfo::Stage read_stage(const Field& field) {
  CheckpointInfo::Stage stage{.index = field["index"].count(), .count = field["count"].count()};
  if (stage.index >= stage.count) field["index"].fail("must be less than the count");
  return stage;
}

ManifestSlice read_slice(const Field& field, const ManifestTensor& tensor, size_t num_files) {
  ManifestSlice slice{.file = static_cast<int>(field["file"].count(std::numeric_limits<int>::max())),
                      .offset = read_shape(field["offset"]),
                      .shape = read_shape(field["shape"]),
                      .size_bytes = field["size_bytes"].count(),
                      .crc32c = read_crc(field["crc32c"])};
  if (static_cast<size_t>(slice.file) >= num_files) {
    field["file"].fail(fmt::format("must be the index of one of the {} files", num_files));
  }
  if (tensor.is_text) return slice;
  if (field.has("hash")) slice.hash = read_hex<uint64_t>(field["hash"], "sixteen");
  const int ndim = tensor.shape.ndim();
  if (slice.offset.ndim() != ndim) field["offset"].fail(fmt::format("must have {} elements", ndim));
  if (slice.shape.ndim() != ndim) field["shape"].fail(fmt::format("must have {} elements", ndim));
  for (int dim = 0; dim < ndim; ++dim) {
    if (slice.shape[dim] > tensor.shape[dim] || slice.offset[dim] > tensor.shape[dim] - slice.shape[dim]) {
      field.fail(fmt::format("must lie inside the tensor's shape {}", tensor.shape));
    }
  }
  if (block_bytes(slice.shape, tensor.dtype) != slice.size_bytes) {
    field["size_bytes"].fail(fmt::format("must be the size of {}{}", to_string(tensor.dtype), slice.shape));
  }
  return slice;
}

ManifestTensor read_tensor(const Field& field, size_t num_files) {
  ManifestTensor tensor{.name = field["name"].text()};
  const auto dtype = field["dtype"].text();
  tensor.is_text = dtype == "str";
  if (!tensor.is_text) {
    try {
      tensor.dtype = parse_dtype(dtype);
    } catch (const InvalidArgument&) {
      field["dtype"].fail("must be a dtype");
    }
    tensor.shape = read_shape(field["shape"]);
    if (!block_bytes(tensor.shape, tensor.dtype)) field["shape"].fail("must have no more bytes than an int64 counts");
  }
  if (field.has("appended")) tensor.appended = field["appended"].boolean();
  for (const auto& slice : field["slices"].items(kMaxSlices)) {
    tensor.slices.push_back(read_slice(slice, tensor, num_files));
  }
  // The files of several ranks hold a whole together; one alone may hold a part. That no slices overlap is looked at
  // where they are joined.
  if (num_files > 1 && !tensor.is_text) {
    int64_t rest = *block_bytes(tensor.shape, tensor.dtype);
    for (const auto& slice : tensor.slices) {
      if (slice.size_bytes > rest) field["slices"].fail("must hold each element of the shape once, and hold more");
      rest -= slice.size_bytes;
    }
    if (rest > 0)
      field["slices"].fail(fmt::format("must hold each element of the shape once, {} bytes of it are missing", rest));
  }
  return tensor;
}

// The checked body's text.
std::string_view body_of(std::string_view text, const std::string& path) {
  if (text.size() > kMaxBytes) {
    throw InvalidArgument("{}: has {} bytes, a manifest has at most {}", path, text.size(), kMaxBytes);
  }
  const bool framed = text.size() >= kBodyStart + kEnd.size() && text.starts_with(kBeforeCrc) &&
                      text.substr(kBeforeCrc.size() + kCrcDigits).starts_with(kAfterCrc) && text.ends_with(kEnd);
  if (!framed) {
    throw InvalidArgument("{}: is no manifest, or damaged: it must begin with {}...\" and end with }}", path,
                          kBeforeCrc);
  }
  const auto stored = text.substr(kBeforeCrc.size(), kCrcDigits);
  const auto body = text.substr(kBodyStart, text.size() - kBodyStart - kEnd.size());
  const auto computed = hex(crc_of(body));
  if (stored != computed) {
    throw InvalidArgument("{}: crc32c of the manifest is {}, it must be {}: the manifest is damaged or was edited",
                          path, computed, stored);
  }
  return body;
}

// A writer makes files and renames them. What a link leads to is another checkpoint's, or changes without this one.
void refuse_link(FileSystem& files, const std::string& path) {
  if (files.kind_of(path) == PathKind::kLinkToNothing) {
    throw InvalidArgument(
        "{}: is {}; a manifest is a file beside its checkpoint: put it there, or move the link away and load the "
        "values unverified",
        path, to_string(PathKind::kLinkToNothing));
  }
  const auto real = files.real_path(path);
  if (base_name(real) == base_name(path) && parent_path(real) == files.real_path(parent_path(path))) return;
  throw InvalidArgument("{}: is a link to {}; a manifest is a file beside its checkpoint: copy it there", path, real);
}

}  // namespace

std::string manifest_path(const std::string& checkpoint_path) { return checkpoint_path + ".manifest"; }
std::string pending_manifest_path(const std::string& checkpoint_path) { return checkpoint_path + ".manifest.new"; }

std::string path_beside(const std::string& checkpoint_path, const std::string& name) {
  return checkpoint_path.substr(0, checkpoint_path.size() - base_name(checkpoint_path).size()) + name;
}

std::string to_text(const Manifest& manifest) {
  try {
    const auto body = body_text(manifest);
    if (body.size() > kMaxBytes - kBodyStart - kEnd.size()) {
      throw InvalidArgument("manifest: has {} bytes, at most {} are accepted", body.size(), kMaxBytes);
    }
    return fmt::format("{}{}{}{}{}", kBeforeCrc, hex(crc_of(body)), kAfterCrc, body, kEnd);
  } catch (const Json::exception&) {
    throw InvalidArgument("manifest: a name, an id, the data position or the random state is not UTF-8");
  }
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const auto json = parse_json(body_of(text, path), path);
  const Field root(path, "the manifest", json);
  if (root["format"].text() != kFormat) root["format"].fail(fmt::format("must be \"{}\"", kFormat));
  const auto version = root["version"].count();
  if (version < 1 || version > kVersion) root["version"].fail(fmt::format("must be 1 to {}", kVersion));
  Manifest manifest;
  auto& info = manifest.info;
  info.epoch = root["epoch"].count();
  info.step_in_epoch = root["step_in_epoch"].count();
  info.step = root["step"].count();
  info.saved_at_ms = root["saved_at_ms"].integer(INT64_MIN, INT64_MAX);
  info.job_id = root["job_id"].text();
  if (root.has("job_name")) info.job_name = root["job_name"].text();
  if (root.has("training_id")) info.training_id = root["training_id"].text();
  info.world_size = static_cast<int>(root["world_size"].count(std::numeric_limits<int>::max()));
  info.network_name = root["network"]["name"].text();
  info.network_hash = root["network"]["hash"].text();
  if (root["network"].has("operators")) info.network_operators = root["network"]["operators"].text();
  if (root.has("optimizer")) info.optimizer = root["optimizer"]["name"].text();
  if (root.has("stage")) info.stage = read_stage(root["stage"]);
  if (root.has("generation")) info.generation = root["generation"].count();
  info.seed = root["random"]["seed"].unsigned_integer();
  info.random_state = root["random"]["state"].text();
  info.data_position = root["data_position"].text();
  if (root.has("rows_per_batch")) info.rows_per_batch = root["rows_per_batch"].count();
  if (root.has("values_elsewhere")) info.values_elsewhere = root["values_elsewhere"].count();
  std::unordered_set<std::string> names;
  for (const auto& field : root["files"].items(kMaxFiles)) {
    manifest.files.push_back(read_file(field, version));
    if (!names.insert(manifest.files.back().name).second) field["name"].fail("must occur once");
  }
  names.clear();
  for (const auto& field : root["tensors"].items(kMaxTensors)) {
    manifest.tensors.push_back(read_tensor(field, manifest.files.size()));
    if (!names.insert(manifest.tensors.back().name).second) field["name"].fail("must occur once");
  }
  return manifest;
}

Manifest read_manifest(FileSystem& files, const std::string& path) {
  refuse_link(files, path);
  return parse_manifest(read_text_file(files, path, kTextKind), path);
}

}  // namespace tessera::checkpoint
