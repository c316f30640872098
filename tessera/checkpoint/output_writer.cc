#include "tessera/checkpoint/output_writer.h"

#include "tessera/base/crc32c.h"
#include "tessera/base/error.h"
#include "tessera/checkpoint/commit.h"
#include "tessera/checkpoint/wire.h"

namespace tessera::checkpoint {
namespace {

void require_checksum(const SourceFile& file, const SourceTensor& tensor, uint32_t crc) {
  if (crc == *tensor.crc32c) return;
  throw InvalidArgument("{}: the tensor {} {} at byte {} is damaged: its crc32c is {:08x}, it must be {:08x}",
                        file.path(), quoted_name(tensor.name), tensor.type_text(),
                        tensor.pieces.empty() ? 0 : tensor.pieces[0].offset, crc, *tensor.crc32c);
}

// Of a text, which is small: of its file only the values' beginnings are looked at.
std::string read_text(FileSystem& files, const SourceFile& source, const std::string& name) {
  const auto file = CkptFile::open(files, source.path());
  for (const auto& entry : file.entries()) {
    if (entry.name == name) return entry.read_text();
  }
  throw IoError("{}: changed while it was read", source.path());
}

ManifestTensor manifest_tensor(const OutputTensor& tensor, const Written& written) {
  ManifestTensor described{
      .name = tensor.like->name, .is_text = tensor.like->is_text, .appended = tensor.like->appended};
  ManifestSlice slice{.size_bytes = written.size_bytes, .crc32c = written.crc32c};
  if (!described.is_text) {
    described.dtype = tensor.like->dtype;
    described.shape = tensor.global;
    slice.offset = tensor.box.offset;
    slice.shape = tensor.box.shape;
  }
  described.slices.push_back(slice);
  return described;
}

}  // namespace

OutputWriter::OutputWriter(FileSystem& files, const SourceFiles& sources, bool verify,
                           std::function<void(int64_t)> count)
    : files_(files), sources_(sources), verify_(verify), count_(std::move(count)) {}

void OutputWriter::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void OutputWriter::require_running() const {
  const std::lock_guard lock(mutex_);
  if (stopped_) throw IoError("stopped, because another file could not be written");
}

// True for one caller only, which then verifies the tensor.
bool OutputWriter::claim(const SourceTensor& tensor) {
  const std::lock_guard lock(mutex_);
  return verified_.emplace(&tensor, Verified::kInProgress).second;
}

// A file must not be committed while another thread still looks at what it was made of.
void OutputWriter::wait_until_verified(const OutputFile& output) {
  std::unique_lock lock(mutex_);
  for (const auto& tensor : output.tensors) {
    for (const auto& part : tensor.sources) {
      if (!part.tensor->crc32c) continue;
      changed_.wait(lock, [&] { return stopped_ || verified_.at(part.tensor) == Verified::kYes; });
      if (stopped_) throw IoError("stopped, because another file could not be written");
    }
  }
}

// Reads a source tensor as a whole unless that has just happened. It was read right before, so that the second reading
// is from memory.
void OutputWriter::verify(const OutputTensor& tensor, uint32_t written_crc, BoxReader& reader) {
  for (const auto& part : tensor.sources) {
    if (!part.tensor->crc32c || !claim(*part.tensor)) continue;
    const bool is_copy = tensor.sources.size() == 1 && (part.tensor->is_text || part.box == tensor.box);
    uint32_t crc = written_crc;
    if (!is_copy) {
      crc = 0;
      reader.read_content(part.rank, *part.tensor, [&](std::span<const std::byte> bytes) { crc = crc32c(bytes, crc); });
    }
    require_checksum(sources_.at(part.rank), *part.tensor, crc);
    const std::lock_guard lock(mutex_);
    verified_[part.tensor] = Verified::kYes;
    changed_.notify_all();
  }
}

std::string OutputWriter::text_of(const OutputTensor& tensor) const {
  return read_text(files_, sources_.at(tensor.sources[0].rank), tensor.like->name);
}

void OutputWriter::copy(const OutputTensor& tensor, BoxReader& reader,
                        FunctionRef<void(std::span<const std::byte>)> sink) {
  uint32_t crc = 0;
  reader.read(tensor, [&](std::span<const std::byte> bytes) {
    crc = crc32c(bytes, crc);
    sink(bytes);
  });
  if (verify_) verify(tensor, crc, reader);
}

Written OutputWriter::add(CkptWriter& writer, const OutputTensor& tensor, BoxReader& reader) {
  const auto& name = tensor.like->name;
  if (tensor.like->is_text) {
    count_(tensor.like->size_bytes);
    return writer.add(Entry(name, text_of(tensor)));
  }
  return writer.add(name, {tensor.like->dtype, tensor.box.shape}, [&](CkptWriter::Sink sink) {
    reader.read(tensor, [&](std::span<const std::byte> bytes) {
      require_running();
      sink(bytes);
      count_(std::ssize(bytes));
    });
  });
}

void OutputWriter::write(const OutputFile& output, int64_t world_size, const std::string& path, BoxReader& reader) {
  commit(files_, path, 0644, [&](WritableFile& file) {
    Manifest manifest{.info = output.info.value_or(CheckpointInfo{})};
    manifest.info.world_size = static_cast<int>(world_size);
    CkptWriter writer(file);
    for (const auto& tensor : output.tensors) {
      const auto written = add(writer, tensor, reader);
      if (verify_) verify(tensor, written.crc32c, reader);
      manifest.tensors.push_back(manifest_tensor(tensor, written));
    }
    writer.finish();
    if (verify_) wait_until_verified(output);
    manifest.files.push_back({.name = base_name(path), .size_bytes = writer.size_bytes(), .crc32c = writer.crc32c()});
    return manifest;
  });
}

}  // namespace tessera::checkpoint
