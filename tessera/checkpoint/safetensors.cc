#include "tessera/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/checkpoint/box_reader.h"
#include "tessera/checkpoint/commit.h"
#include "tessera/checkpoint/conversion.h"
#include "tessera/checkpoint/json_field.h"
#include "tessera/checkpoint/output_writer.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLengthBytes = 8;
// As the format's own library has it.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxTensors = size_t{1} << 20;
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<const char*, DType>, 13> kTypeNames = {{{"F64", DType::kF64},
                                                                       {"F32", DType::kF32},
                                                                       {"F16", DType::kF16},
                                                                       {"BF16", DType::kBF16},
                                                                       {"I64", DType::kI64},
                                                                       {"I32", DType::kI32},
                                                                       {"I16", DType::kI16},
                                                                       {"I8", DType::kI8},
                                                                       {"U64", DType::kU64},
                                                                       {"U32", DType::kU32},
                                                                       {"U16", DType::kU16},
                                                                       {"U8", DType::kU8},
                                                                       {"BOOL", DType::kBool}}};

const char* type_name(DType dtype) {
  const auto it =
      std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const auto& entry) { return entry.second == dtype; });
  check(it != kTypeNames.end(), "a dtype without a name");
  return it->first;
}

DType read_dtype(const JsonField& field) {
  const auto name = field.text();
  const auto it =
      std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const auto& entry) { return entry.first == name; });
  if (it == kTypeNames.end()) field.fail("must be a dtype");
  return it->second;
}

SourceTensor read_tensor(const std::string& name, const JsonField& field, int64_t data_begin, int64_t data_bytes) {
  SourceTensor tensor{.name = name, .dtype = read_dtype(field["dtype"])};
  auto bytes = static_cast<int64_t>(size_bytes(tensor.dtype));
  for (const auto& item : field["shape"].items(kMaxNdim)) {
    tensor.shape.push_back(item.count());
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
      field["shape"].fail("must have no more bytes than an int64 counts");
    }
  }
  const auto offsets = field["data_offsets"].items(2);
  if (offsets.size() != 2) field["data_offsets"].fail("must have 2 elements");
  const int64_t begin = offsets[0].count(data_bytes);
  const int64_t end = offsets[1].count(data_bytes);
  if (end - begin != bytes) field["data_offsets"].fail(fmt::format("must be {} bytes apart", bytes));
  tensor.size_bytes = bytes;
  if (bytes > 0) tensor.pieces.push_back({data_begin + begin, bytes});
  return tensor;
}

// The tensors' places must follow each other without holes: what nobody describes could hold anything.
void require_no_holes(const std::vector<SourceTensor>& tensors, int64_t data_begin, int64_t file_bytes,
                      const std::string& path) {
  int64_t at = data_begin;
  for (const auto& tensor : tensors) {
    if (tensor.pieces.empty()) continue;
    if (tensor.pieces[0].offset != at) {
      throw InvalidArgument("{}: tensor \"{}\" begins at byte {}, it must begin at {}: a hole, or an overlap", path,
                            tensor.name, tensor.pieces[0].offset, at);
    }
    at += tensor.size_bytes;
  }
  if (at != file_bytes) throw InvalidArgument("{}: has {} bytes, its tensors end at {}", path, file_bytes, at);
}

// The header, and then the values as they are handed to append(); the file appears with finish().
class SafetensorsWriter {
 public:
  SafetensorsWriter(FileSystem& files, const std::string& path) : files_(files), path_(path) {
    if (!path.ends_with(".safetensors")) throw InvalidArgument("{}: the name must end in .safetensors", path);
  }
  ~SafetensorsWriter() {
    if (file_ == nullptr) return;
    try {
      if (files_.exists(temporary())) files_.remove(temporary());
    } catch (const std::exception&) {  // the failure that led here is the one to tell
    }
  }
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void add_text(const std::string& name, const std::string& text) { metadata_[name] = text; }
  void add(const std::string& name, const Type& type) {
    if (header_.contains(name)) throw InvalidArgument("{}: two tensors are named \"{}\"", path_, name);
    header_[name] = {{"dtype", type_name(type.dtype)},
                     {"shape", type.shape.to_vector()},
                     {"data_offsets", {size_bytes_, size_bytes_ + type.size_bytes()}}};
    size_bytes_ += type.size_bytes();
  }
  void begin() {
    Json all = Json::object();
    if (!metadata_.empty()) all[kMetadata] = metadata_;
    all.update(header_);
    auto text = all.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');  // so that values are aligned
    const auto length = static_cast<uint64_t>(text.size());
    lock_.emplace(files_, saving_lock_path(path_));
    remove_if_there(files_, temporary());
    file_ = files_.create(temporary(), kUmaskAccess);
    file_->append(std::as_bytes(std::span(&length, 1)));
    file_->append(text);
  }
  void append(std::span<const std::byte> bytes) { file_->append(bytes); }
  void finish() {
    file_->sync();
    file_->close();
    files_.rename(temporary(), path_);
    file_.reset();
    files_.sync_directory(parent_path(path_));
    lock_.reset();
  }

 private:
  std::string temporary() const { return path_ + ".tmp"; }

  FileSystem& files_;
  std::string path_;
  Json header_ = Json::object();
  Json metadata_ = Json::object();
  int64_t size_bytes_ = 0;
  std::optional<WaitingLock> lock_;  // while the file is being written
  std::unique_ptr<WritableFile> file_;
};

}  // namespace

std::vector<SourceTensor> read_safetensors_header(FileSystem& files, const std::string& path) {
  const auto file_bytes = files.size_bytes(path);
  if (file_bytes < kLengthBytes) throw InvalidArgument("{}: has {} bytes, too few for safetensors", path, file_bytes);
  const auto reader = open_ranges(files, path);
  uint64_t length = 0;
  reader->read(0, std::as_writable_bytes(std::span(&length, 1)));
  const auto limit = static_cast<uint64_t>(std::min(kMaxHeaderBytes, file_bytes - kLengthBytes));
  if (length > limit) {
    throw InvalidArgument("{}: the header has {} bytes, at most {} can be: not safetensors, or truncated", path, length,
                          limit);
  }
  std::string header(length, '\0');
  reader->read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  const auto json = parse_json(header, path);
  const JsonField root(path, "the header", json);
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  std::vector<SourceTensor> tensors;
  for (const auto& [name, field] : root.members(kMaxTensors)) {
    if (name != kMetadata) tensors.push_back(read_tensor(name, field, data_begin, file_bytes - data_begin));
  }
  const auto place = [](const SourceTensor& tensor) { return tensor.pieces.empty() ? 0 : tensor.pieces[0].offset; };
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const SourceTensor& a, const SourceTensor& b) { return place(a) < place(b); });
  require_no_holes(tensors, data_begin, file_bytes, path);
  return tensors;
}

std::vector<std::pair<std::string, Tensor>> load_safetensors(FileSystem& files, const std::string& path) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto headers = read_safetensors_header(files, path);
  const auto reader = open_ranges(files, path);
  for (const auto& header : headers) {
    Tensor tensor(header.dtype, header.shape);
    if (!header.pieces.empty()) reader->read(header.pieces[0].offset, tensor.bytes());
    tensors.emplace_back(header.name, std::move(tensor));
  }
  return tensors;
}

void save_safetensors(FileSystem& files, const std::string& path, std::span<const Entry> entries) {
  SafetensorsWriter writer(files, path);
  for (const auto& entry : entries) {
    if (entry.is_text) {
      writer.add_text(entry.name, entry.text);
    } else {
      writer.add(entry.name, entry.value.type());
    }
  }
  writer.begin();
  for (const auto& entry : entries) {
    if (!entry.is_text) writer.append(Tensor::copy_of(entry.value).bytes());
  }
  writer.finish();
}

std::vector<std::string> export_safetensors(FileSystem& files, const std::string& checkpoint, const std::string& path,
                                            const std::string& strategy_file) {
  SafetensorsWriter writer(files, path);
  const auto sources = open_checkpoint(files, checkpoint);
  const auto from = ParameterPlacement::read(files, strategy_file);
  const ParameterPlacement whole;
  Conversion conversion(from, whole, sources, /*check_replicas=*/true);
  const auto output = conversion.output(0);
  for (const auto& tensor : output.tensors) {
    if (tensor.like->is_text) {
      writer.add_text(tensor.like->name, read_text(files, sources.at(tensor.sources[0].rank), tensor.like->name));
    } else {
      writer.add(tensor.like->name, {tensor.like->dtype, tensor.box.shape});
    }
  }
  writer.begin();
  OutputWriter(files, sources, {}).copy(output, [&](std::span<const std::byte> bytes) { writer.append(bytes); });
  writer.finish();
  return paths_of(sources);
}

void import_safetensors(FileSystem& files, const std::string& path, const std::string& checkpoint_path) {
  if (!path.ends_with(".safetensors")) throw InvalidArgument("{}: the name must end in .safetensors", path);
  if (!checkpoint_path.ends_with(".ckpt")) {
    throw InvalidArgument("{}: a checkpoint's name must end in .ckpt", checkpoint_path);
  }
  SourceFiles sources;
  sources.emplace(0, SourceFile::open(files, path));
  const ParameterPlacement whole;
  Conversion conversion(whole, whole, sources, /*check_replicas=*/false);
  const auto output = conversion.output(0);
  if (output.size_bytes == 0) throw InvalidArgument("{}: holds no tensor with elements", path);
  OutputWriter(files, sources, {.verify = false}).commit(output, 1, checkpoint_path);
}

}  // namespace tessera::checkpoint
