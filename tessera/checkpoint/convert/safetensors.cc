#include "tessera/checkpoint/convert/safetensors.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/checkpoint/convert/conversion.h"
#include "tessera/checkpoint/convert/output_writer.h"
#include "tessera/checkpoint/convert/region_reader.h"
#include "tessera/checkpoint/format/ckpt_path.h"
#include "tessera/checkpoint/read/safetensors_header.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

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
    header_[name] = {{"dtype", safetensors_type_name(type.dtype)},
                     {"shape", type.shape.to_vector()},
                     {"data_offsets", {size_bytes_, size_bytes_ + type.size_bytes()}}};
    size_bytes_ += type.size_bytes();
  }
  void begin() {
    Json all = Json::object();
    if (!metadata_.empty()) all[kSafetensorsMetadata] = metadata_;
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
      writer.add(tensor.like->name, {tensor.like->dtype, tensor.region.shape});
    }
  }
  writer.begin();
  OutputWriter(files, sources, {}).copy(output, [&](std::span<const std::byte> bytes) { writer.append(bytes); });
  writer.finish();
  return paths_of(sources);
}

void import_safetensors(FileSystem& files, const std::string& path, const std::string& checkpoint_path) {
  if (!path.ends_with(".safetensors")) throw InvalidArgument("{}: the name must end in .safetensors", path);
  require_ckpt_suffix(checkpoint_path);
  SourceFiles sources;
  sources.emplace(0, SourceFile::open(files, path));
  const ParameterPlacement whole;
  Conversion conversion(whole, whole, sources, /*check_replicas=*/false);
  const auto output = conversion.output(0);
  if (output.size_bytes == 0) throw InvalidArgument("{}: holds no tensor with elements", path);
  OutputWriter(files, sources, {.verify = false}).commit(output, 1, checkpoint_path);
}

}  // namespace tessera::checkpoint
