#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/convert/safetensors.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/format/ckpt_reader.h"
#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/safetensors_header.h"
#include "tessera/checkpoint/strategy/group_file.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/round_trip.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

using checkpoint::CkptFile;
using checkpoint::CkptWriter;
using checkpoint::decrypt;
using checkpoint::EncryptingFile;
using checkpoint::Encryption;
using checkpoint::encryption_mode_of;
using checkpoint::Entry;
using checkpoint::export_safetensors;
using checkpoint::group_file_to_protobuf;
using checkpoint::GroupFile;
using checkpoint::Manifest;
using checkpoint::parse_group_file;
using checkpoint::parse_manifest;
using checkpoint::parse_strategy_file;
using checkpoint::read_safetensors_header;
using checkpoint::SourceTensor;
using checkpoint::strategy_to_json;
using checkpoint::strategy_to_protobuf;
using checkpoint::StrategyFile;
using checkpoint::to_text;
using checkpoint::transform_checkpoints;

std::string source_file(const std::string& path) {
  return FileSystem::local().read_text(join_path(TESSERA_SOURCE_DIR, path));
}

class BytesFile : public ReadableFile {
 public:
  explicit BytesFile(const std::string& bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes() const override { return std::as_bytes(std::span(bytes_.data(), bytes_.size())); }

 private:
  std::string bytes_;
};

// .ckpt

class StringFile : public WritableFile {
 public:
  explicit StringFile(std::string& to) : to_(to) {}
  void append(std::span<const std::byte> bytes) override {
    to_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void write_at(int64_t /*offset*/, std::span<const std::byte> /*bytes*/) override {
    throw InternalError("a checkpoint is written from its beginning to its end");
  }
  void sync() override {}
  void close() override {}

 private:
  std::string& to_;
};

std::string ckpt_bytes(const std::vector<Entry>& entries, const CkptWriter::Options& options) {
  std::string bytes;
  StringFile file(bytes);
  CkptWriter writer(file, options);
  for (const auto& entry : entries) writer.add(entry);
  writer.finish();
  return bytes;
}

std::vector<std::string> ckpt_examples() {
  const std::vector<Entry> entries = {Entry("fc.weight", Tensor::full({DType::kF32, {2, 3}}, 0.5)),
                                      Entry("bn.gamma", Tensor::full({DType::kBF16, {4}}, 1)),
                                      Entry("mask", Tensor::full({DType::kBool, {3}}, 1)),
                                      Entry("note", std::string("gr\xc3\xbc\xc3\x9f dich")),
                                      Entry("nothing", ""),
                                      Entry("none", Tensor(DType::kF32, {0, 3})),
                                      Entry::number("step_num", int64_t{73}),
                                      Entry::number("lr", 0.1F)};
  const std::vector<Entry> cut = {entries[0]};
  return {ckpt_bytes(entries, {}), ckpt_bytes(entries, {.trailer = true}), ckpt_bytes(cut, {.max_record_bytes = 8}),
          source_file("tessera/checkpoint/testdata/reference_2_10.ckpt")};
}

std::vector<Entry> entries_of(const CkptFile& file) {
  std::vector<Entry> entries;
  for (const auto& stored : file.entries()) {
    if (stored.is_text) {
      entries.emplace_back(stored.name, stored.read_text());
    } else if (stored.size_bytes > 0) {  // else it leaves no record
      entries.emplace_back(stored.name, stored.read());
    }
  }
  return entries;
}

bool same_entries(const std::vector<Entry>& a, const std::vector<Entry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Entry& x, const Entry& y) {
    if (x.name != y.name || x.is_text != y.is_text) return false;
    return x.is_text ? x.text == y.text : bit_equal(x.owner, y.owner);
  });
}

bool ckpt_parses(const std::string& bytes) {
  const auto parse = [](const std::string& text) {
    return entries_of(CkptFile(std::make_unique<BytesFile>(text), "f"));
  };
  const auto entries = parse_or_refuse(parse, bytes);
  if (!entries) return false;
  if (entries->empty()) return true;  // an empty file is none
  return comes_back(
      bytes, parse, [](const auto& value) { return ckpt_bytes(value, {}); }, same_entries);
}

// What is converted and exported holds what was read.

bool conversion_parses(const std::string& bytes) {
  const auto parse = [](const std::string& text) {
    return entries_of(CkptFile(std::make_unique<BytesFile>(text), "f"));
  };
  const auto convert = [&](const std::string& text) {
    MemoryFileSystem files;
    files.create_directories("src/rank_0");
    files.create("src/rank_0/f.ckpt")->append(text);
    export_safetensors(files, "src", "f.safetensors");
    transform_checkpoints(files, "src", "dst", "out", "", "", {.num_threads = 1});
    return parse(files.read_text("dst/rank_0/out0.ckpt"));
  };
  const auto converted = parse_or_refuse(convert, bytes);
  if (!converted) return false;
  if (!same_entries(parse(bytes), *converted)) throw Broken("what was converted differs");
  return true;
}

// Manifest

std::string framed(const std::string& body) {
  const auto crc = crc32c(std::as_bytes(std::span(body.data(), body.size())));
  return fmt::format("{{\"crc32c\":\"{:08x}\",\"manifest\":\n{}\n}}\n", crc, body);
}

std::vector<std::string> manifest_examples() {
  Manifest manifest{.info = {.epoch = 2,
                             .step_in_epoch = 73,
                             .step = 146,
                             .saved_at_ms = 1'700'000'000'123,
                             .job_id = "job-7",
                             .job_name = "pictures, third try",
                             .world_size = 4,
                             .network_name = "net",
                             .seed = 1}};
  manifest.files.push_back({.name = "CKP-2_73.ckpt", .size_bytes = 100, .crc32c = 7});
  manifest.tensors.push_back({.name = "w",
                              .dtype = DType::kBF16,
                              .shape = {4, 3},
                              .slices = {{.offset = {1, 0}, .shape = {2, 3}, .size_bytes = 12, .crc32c = 9}}});
  manifest.tensors.push_back({.name = "note", .is_text = true, .appended = true, .slices = {{.size_bytes = 8}}});
  manifest.tensors.push_back({.name = "nothing", .is_text = true, .slices = {{.size_bytes = 0}}});
  manifest.tensors.push_back({.name = "none", .shape = {0, 3}, .slices = {{.offset = {0, 0}, .shape = {0, 3}}}});
  return {to_text(manifest), to_text({})};
}

// Damage behind the checksum, most times.
std::string mutate_manifest(const std::string& text, Draws& draws) {
  if (draws.one_in(8)) return mutate_bytes(text, draws);
  constexpr size_t kBefore = 33;
  constexpr size_t kAfter = 3;
  return framed(mutate_json(text.substr(kBefore, text.size() - kBefore - kAfter), draws));
}

bool manifest_parses(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return parse_manifest(bytes, "f"); },
      [](const Manifest& manifest) { return to_text(manifest); }, std::equal_to<>());
}

// Strategy and group files

StrategyFile strategy_example() {
  StrategyFile strategy;
  strategy.strategies = {{"MatMul_fc.weight", 0, {{2, 1}, {1, 4}}}, {"MatMul_fc2.weight", 1, {{8, 1}, {1, 1}}}};
  strategy.layouts = {{.name = "1-fc.weight",
                       .device_matrix = {2, 4},
                       .tensor_map = {{}, {0}},
                       .tensor_shape = {128, 96},
                       .opt_weight_shard_step = 4,
                       .opt_weight_shard_size = 2},
                      {.name = "emb", .device_matrix = {2, 2, 2}, .tensor_map = {{2, 1}, {0}}, .tensor_shape = {8, 8}},
                      {.name = "hand",
                       .device_matrix = {2},
                       .tensor_map = {{0}},
                       .tensor_shape = {8},
                       .param_split_shape = {3, 5},
                       .indices_offset = {0, 3},
                       .field = 39}};
  return strategy;
}

// Writers sort, and only JSON holds the global shapes.
StrategyFile canonical(StrategyFile strategy, bool with_shapes) {
  std::sort(strategy.strategies.begin(), strategy.strategies.end(),
            [](const auto& a, const auto& b) { return std::tie(a.node, a.stage) < std::tie(b.node, b.stage); });
  std::sort(strategy.layouts.begin(), strategy.layouts.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  if (!with_shapes) {
    for (auto& layout : strategy.layouts) layout.tensor_shape.clear();
  }
  return strategy;
}

StrategyFile parse_strategy(const std::string& bytes) { return parse_strategy_file(bytes, "f"); }

bool strategy_parses(const std::string& bytes) {
  return comes_back(bytes, parse_strategy, strategy_to_protobuf, [](const StrategyFile& a, const StrategyFile& b) {
    return canonical(a, false) == canonical(b, false);
  });
}

bool strategy_json_parses(const std::string& text) {
  const auto strategy = parse_or_refuse(parse_strategy, text);
  if (!strategy) return false;
  const bool has_shapes = std::all_of(strategy->layouts.begin(), strategy->layouts.end(), [](const auto& layout) {
    return layout.tensor_shape.size() == layout.tensor_map.size();
  });
  if (!has_shapes || text.find_first_of("{[") == std::string::npos) return strategy_parses(text);
  return comes_back(text, parse_strategy, strategy_to_json, [](const StrategyFile& a, const StrategyFile& b) {
    return canonical(a, true) == canonical(b, true);
  });
}

bool group_parses(const std::string& bytes) {
  return comes_back(
      bytes, [](const std::string& text) { return parse_group_file(text, "f"); }, group_file_to_protobuf,
      std::equal_to<>());
}

// Safetensors

std::string safetensors_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + std::string(data_bytes, '\x11');
}

std::vector<std::string> safetensors_examples() {
  return {safetensors_bytes(R"({"__metadata__":{"note":"x"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                            R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                            R"("e":{"dtype":"I8","shape":[0,4],"data_offsets":[32,32]}})",
                            32),
          safetensors_bytes("{}", 0)};
}

std::string mutate_safetensors(const std::string& bytes, Draws& draws) {
  if (draws.one_in(8)) return mutate_bytes(bytes, draws);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const size_t data_bytes = bytes.size() - sizeof(length) - length;
  return safetensors_bytes(mutate_json(bytes.substr(sizeof(length), length), draws), data_bytes);
}

std::vector<SourceTensor> parse_safetensors(const std::string& bytes) {
  MemoryFileSystem files;
  files.create("f.safetensors")->append(bytes);
  auto tensors = read_safetensors_header(files, "f.safetensors");
  for (const auto& tensor : tensors) {
    for (const auto& piece : tensor.pieces) {
      if (piece.offset < 0 || piece.size < 0 || piece.offset > std::ssize(bytes) - piece.size) {
        throw Broken("a tensor lies outside the file");
      }
    }
  }
  return tensors;
}

std::string print_safetensors(const std::vector<SourceTensor>& tensors) {
  constexpr std::pair<DType, const char*> kNames[] = {
      {DType::kF64, "F64"}, {DType::kF32, "F32"}, {DType::kF16, "F16"},  {DType::kBF16, "BF16"}, {DType::kI64, "I64"},
      {DType::kI32, "I32"}, {DType::kI16, "I16"}, {DType::kI8, "I8"},    {DType::kU64, "U64"},   {DType::kU32, "U32"},
      {DType::kU16, "U16"}, {DType::kU8, "U8"},   {DType::kBool, "BOOL"}};
  nlohmann::json header = nlohmann::json::object();
  int64_t at = 0;
  for (const auto& tensor : tensors) {
    const auto* name = std::find_if(std::begin(kNames), std::end(kNames),
                                    [&](const auto& entry) { return entry.first == tensor.dtype; });
    header[tensor.name] = {
        {"dtype", name->second}, {"shape", tensor.shape.to_vector()}, {"data_offsets", {at, at + tensor.size_bytes}}};
    at += tensor.size_bytes;
  }
  return safetensors_bytes(header.dump(), static_cast<size_t>(at));
}

bool safetensors_parses(const std::string& bytes) {
  const auto same = [](const std::vector<SourceTensor>& a, const std::vector<SourceTensor>& b) {
    const auto sorted = [](std::vector<SourceTensor> tensors) {  // those without elements have no place
      std::sort(tensors.begin(), tensors.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
      return tensors;
    };
    const auto left = sorted(a);
    const auto right = sorted(b);
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& x, const auto& y) {
      return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.size_bytes == y.size_bytes;
    });
  };
  return comes_back(bytes, parse_safetensors, print_safetensors, same);
}

// Encrypted files

const Encryption kEncryption{.key = "0123456789abcdef", .mode = "AES-CBC"};

std::string encrypt(const std::string& plain, const Encryption& encryption) {
  std::string bytes;
  StringFile file(bytes);
  EncryptingFile encrypting(file, encryption, 64);
  encrypting.append(plain);
  encrypting.finish();
  return bytes;
}

std::string decrypt_with(const std::string& bytes, const Encryption& encryption) {
  const auto plain = decrypt(std::as_bytes(std::span(bytes.data(), bytes.size())), "f", encryption);
  return {reinterpret_cast<const char*>(plain->bytes().data()), plain->bytes().size()};
}

bool encrypted_parses(const std::string& bytes) {
  auto encryption = kEncryption;
  if (const auto mode = encryption_mode_of(std::as_bytes(std::span(bytes.data(), bytes.size()))))
    encryption.mode = *mode;
  return comes_back(
      bytes, [&](const std::string& text) { return decrypt_with(text, encryption); },
      [&](const std::string& plain) { return encrypt(plain, encryption); }, std::equal_to<>());
}

}  // namespace

std::vector<Target> checkpoint_targets() {
  const auto strategy = strategy_example();
  const GroupFile groups{.groups = {{"4-global", {0, 4}}, {"world", {0, 1, 2, 3}}}, .restore_ranks = {0, 4}};
  return {{"ckpt", ckpt_examples(), mutate_wire, ckpt_parses},
          {"conversion", ckpt_examples(), mutate_wire, conversion_parses},
          {"encrypted",
           {encrypt(ckpt_examples()[0], kEncryption), encrypt(ckpt_examples()[2], {.key = kEncryption.key}),
            encrypt(ckpt_examples()[0], {.key = kEncryption.key}),
            encrypt(ckpt_examples()[2], {.key = kEncryption.key, .mode = "AES-GCM/reference"})},
           mutate_bytes,
           encrypted_parses},
          {"manifest", manifest_examples(), mutate_manifest, manifest_parses},
          {"strategy",
           {strategy_to_protobuf(strategy), source_file("tessera/checkpoint/testdata/reference_2_10_strategy.ckpt")},
           mutate_wire,
           strategy_parses},
          {"strategy_json", {strategy_to_json(strategy)}, mutate_json, strategy_json_parses},
          {"group", {group_file_to_protobuf(groups)}, mutate_wire, group_parses},
          {"safetensors", safetensors_examples(), mutate_safetensors, safetensors_parses}};
}

}  // namespace tessera::fuzz
