// Checkpoints as files of named tensors.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/helped_module.h"
#include "python/src/threads.h"

namespace tessera::python {

std::vector<checkpoint::Entry> to_entries(const nb::dict& values) {
  std::vector<checkpoint::Entry> entries;
  for (const auto& [key, value] : values) {
    const auto name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::str>(value)) {
      entries.emplace_back(name, nb::cast<std::string>(value));
    } else {
      entries.emplace_back(name, to_tensor(value));
    }
  }
  return entries;
}

checkpoint::Encryption to_encryption(const std::optional<nb::bytes>& key, const std::string& mode) {
  checkpoint::Encryption encryption{.key = key ? std::string(key->c_str(), key->size()) : "", .mode = mode};
  if (key && encryption.key.empty())
    throw InvalidArgument("a key of encryption must have 16, 24 or 32 bytes, got none");
  check_encryption(encryption);
  return encryption;
}

namespace {

Path save(const Path& path, const nb::dict& values, const nb::dict& appended, bool read_only, bool trailer,
          const std::optional<nb::bytes>& key, const std::string& mode) {
  const auto entries = to_entries(values);
  const checkpoint::SaveOptions options{.path = path.bytes,
                                        .append_info = to_entries(appended),
                                        .read_only = read_only,
                                        .trailer = trailer,
                                        .encryption = to_encryption(key, mode)};
  const WithoutGil computing;
  return {checkpoint::save(FileSystem::local(), options, entries, {})};
}

void save_safetensors(const Path& path, const nb::dict& values) {
  const auto entries = to_entries(values);
  const WithoutGil computing;
  checkpoint::save_safetensors(FileSystem::local(), path.bytes, entries);
}

nb::dict load_safetensors(const Path& path) {
  nb::dict values;
  for (const auto& [name, tensor] : checkpoint::load_safetensors(FileSystem::local(), path.bytes)) {
    values[name.c_str()] = nb::cast(tensor);
  }
  return values;
}

nb::object value_of(const checkpoint::StoredEntry& entry) {
  return entry.is_text ? nb::cast(entry.read_text()) : nb::cast(entry.read());
}

class OpenCheckpoint {
 public:
  OpenCheckpoint(const std::string& path, const checkpoint::Encryption& decryption)
      : loaded_(std::make_unique<checkpoint::Checkpoint>(checkpoint::load(FileSystem::local(), path, decryption))) {}
  const checkpoint::Checkpoint& get() const { return *loaded_; }

 private:
  std::unique_ptr<checkpoint::Checkpoint> loaded_;
};

OpenCheckpoint open(const Path& path, const std::optional<nb::bytes>& key, const std::string& mode) {
  const auto decryption = to_encryption(key, mode);
  const WithoutGil computing;
  return {path.bytes, decryption};
}

nb::dict load(const Path& path, const std::optional<nb::bytes>& key, const std::string& mode) {
  const auto loaded = open(path, key, mode);
  nb::dict values;
  for (const auto& entry : loaded.get().entries()) values[entry.name.c_str()] = value_of(entry);
  return values;
}

void bind_file(nb::module_& m) {
  auto file = nb::class_<OpenCheckpoint>(
      m, "Checkpoint",
      "A checkpoint file whose values are read when they are asked for: file[name], a tensor or a text.");
  file.def("keys", [](const OpenCheckpoint& self) {
    std::vector<std::string> names;
    for (const auto& entry : self.get().entries()) names.push_back(entry.name);
    return names;
  });
  file.def("__len__", [](const OpenCheckpoint& self) { return self.get().entries().size(); });
  file.def("__contains__",
           [](const OpenCheckpoint& self, const std::string& name) { return self.get().find(name) != nullptr; });
  file.def("__getitem__", [](const OpenCheckpoint& self, const std::string& name) {
    const auto* entry = self.get().find(name);
    if (entry == nullptr) throw nb::key_error(name.c_str());
    return value_of(*entry);
  });
  helped(m).def("open", &open, "path"_a, "dec_key"_a = nb::none(), "dec_mode"_a = "AES-GCM",
                "The file, verified. Raises InvalidArgument when it is damaged, IoError when it cannot be read.");
}

}  // namespace

void bind_checkpoint(nb::module_& parent) {
  auto m = parent.def_submodule("checkpoint", "Checkpoints as files of named tensors, which are whole or absent.");
  helped(m).def(
      "save", &save, "path"_a, "values"_a, "append_info"_a = nb::dict(), "read_only"_a = false, "trailer"_a = false,
      "enc_key"_a = nb::none(), "enc_mode"_a = "AES-GCM",
      R"(Writes tensors (and texts) by name, with a manifest; ".ckpt" is appended where it is missing. Returns the path.

append_info: information after the parameters. read_only: mode 0400. trailer: a CRC-32 at the file's end. enc_key: 16, 24 or 32
bytes, the file is encrypted, and only its owner may read it; the manifest, names, types and shapes, is not. enc_mode: "AES-GCM",
or "AES-GCM/reference", which the reference reads but which does not notice that blocks were exchanged. "AES-CBC" is only read.)");
  helped(m).def(
      "find_writer",
      [](const Path& directory) {
        train::RankBarrier barrier(context().world());
        const WithoutGil computing;
        return checkpoint::find_writer(FileSystem::local(), barrier, directory.bytes);
      },
      "directory"_a,
      "The lowest rank that sees the same directory as this one: the rank that writes what all of them name. Makes the "
      "directory where "
      "it is missing. Every rank calls it; raises IoError on all, naming the rank, when one cannot write there.");
  helped(m).def("save_safetensors", &save_safetensors, "path"_a, "values"_a,
                "Writes tensors by name as a .safetensors file; texts become metadata.");
  helped(m).def("load_safetensors", &load_safetensors, "path"_a, "The tensors of a .safetensors file by name.");
  helped(m).def(
      "load", &load, "path"_a, "dec_key"_a = nb::none(), "dec_mode"_a = "AES-GCM",
      "The tensors (and texts) of a file by name. Raises InvalidArgument when it is damaged, IoError when it cannot "
      "be read.");
  bind_file(m);
  bind_conversion(m);
}

}  // namespace tessera::python
