#include "tessera/checkpoint/convert/output_writer.h"

#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/workers/in_threads.h"
#include "tessera/checkpoint/convert/tensor_hashes.h"
#include "tessera/checkpoint/format/ckpt_assembly.h"
#include "tessera/checkpoint/write/commit.h"

namespace tessera::checkpoint {
namespace {

CkptAssembly::Value value_of(const OutputTensor& tensor) {
  const auto& like = *tensor.like;
  if (like.is_text) return {like.name, "str", {0}, like.size_bytes, true};
  const int64_t bytes = tensor.region.shape.num_elements() * static_cast<int64_t>(size_bytes(like.dtype));
  return {like.name, ckpt_type_name(like.dtype), tensor.region.shape, bytes, bytes > 0};
}

std::vector<CkptAssembly::Value> values_of(const OutputFile& output) {
  std::vector<CkptAssembly::Value> values;
  for (const auto& tensor : output.tensors) values.push_back(value_of(tensor));
  return values;
}

using Hashes = std::vector<std::optional<uint64_t>>;  // by tensor

ManifestTensor manifest_tensor(const OutputTensor& tensor, const Written& written, std::optional<uint64_t> hash) {
  ManifestTensor described{
      .name = tensor.like->name, .is_text = tensor.like->is_text, .appended = tensor.like->appended};
  ManifestSlice slice{.size_bytes = written.size_bytes, .crc32c = written.crc32c};
  if (!described.is_text) {
    described.dtype = tensor.like->dtype;
    described.shape = tensor.global;
    slice.offset = tensor.region.offset;
    slice.shape = tensor.region.shape;
    slice.hash = tensor.region.is_empty() ? 0 : hash;
  }
  described.slices.push_back(slice);
  return described;
}

Manifest manifest_of(const OutputFile& output, const CkptAssembly& assembly, const Hashes& hashes,
                     const std::string& name, int64_t world_size) {
  Manifest manifest{.info = output.info.value_or(CheckpointInfo{})};
  manifest.info.world_size = static_cast<int>(world_size);
  for (size_t t = 0; t < output.tensors.size(); ++t) {
    manifest.tensors.push_back(manifest_tensor(output.tensors[t], assembly.written(t), hashes[t]));
  }
  manifest.files.push_back({.name = name, .size_bytes = assembly.size_bytes(), .crc32c = assembly.crc32c()});
  return manifest;
}

}  // namespace

OutputWriter::OutputWriter(FileSystem& files, const SourceFiles& sources, Options options)
    : files_(files), sources_(sources), options_(std::move(options)), planner_(options_.verify) {}

std::vector<Manifest> OutputWriter::write(std::span<const OutputFile> outputs, std::span<WritableFile* const> files,
                                          std::span<const std::string> names, int64_t world_size) {
  std::vector<std::unique_ptr<CkptAssembly>> assemblies;
  std::vector<Hashes> hashes;
  for (size_t i = 0; i < outputs.size(); ++i) {
    assemblies.push_back(std::make_unique<CkptAssembly>(*files[i], values_of(outputs[i])));
    hashes.emplace_back(outputs[i].tensors.size());
  }
  const auto passes = planner_.plan(outputs);
  std::vector<RegionReader> readers;  // of each thread
  for (int i = 0; i < options_.num_threads; ++i) readers.emplace_back(files_, sources_);
  for_each_in_threads(options_.num_threads, passes.size(), [&](const ThreadTurn& turn) {
    const auto write_piece = [&](std::span<const TensorPass::Holder> holders, std::span<const std::byte> bytes) {
      if (turn.failed) throw IoError("stopped, because another tensor could not be converted");
      for (const auto& holder : holders) {
        assemblies[holder.output]->write(holder.tensor, bytes);
        if (options_.count) options_.count(std::ssize(bytes));
      }
    };
    for (const auto& one : passes[turn.i].run(sources_, readers[turn.thread], write_piece)) {
      for (const auto& holder : one.holders) hashes[holder.output][holder.tensor] = one.hash;
    }
  });
  std::vector<Manifest> manifests;
  for (size_t i = 0; i < outputs.size(); ++i) {
    manifests.push_back(manifest_of(outputs[i], *assemblies[i], hashes[i], names[i], world_size));
  }
  return manifests;
}

void OutputWriter::commit(const OutputFile& output, int64_t world_size, const std::string& path) {
  checkpoint::commit(files_, path, kUmaskAccess, [&](WritableFile& file) {
    WritableFile* const to[] = {&file};
    const std::string names[] = {base_name(path)};
    auto manifest = std::move(write(std::span(&output, 1), to, names, world_size)[0]);
    TensorHashes written;
    written.add(manifest);
    written.require_same(TensorHashes(sources_), path);
    return manifest;
  });
}

void OutputWriter::copy(const OutputFile& output, FunctionRef<void(std::span<const std::byte>)> sink) {
  RegionReader reader(files_, sources_);
  for (const auto& pass : planner_.plan(std::span(&output, 1))) {
    pass.run(sources_, reader, [&](std::span<const TensorPass::Holder> holders, std::span<const std::byte> bytes) {
      if (!output.tensors[holders[0].tensor].like->is_text) sink(bytes);
    });
  }
}

}  // namespace tessera::checkpoint
