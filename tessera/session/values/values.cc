#include "tessera/session/values/values.h"

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/session/values/device_snapshot.h"
#include "tessera/session/values/sliced_read.h"
#include "tessera/session/values/sliced_write.h"
#include "tessera/session/values/transfer_slices.h"

namespace tessera::session {

void Values::spill(std::span<const Spilled> values, const ScratchFile& file) {
  check(layout_.offsets.empty(), "what spills is known before values are added");
  ir::PersistentLayout in_file;
  for (const auto& [name, type] : values) {
    in_file.add(name, type);
    spilled_[name] = {in_file.offsets.at(name), type.size_bytes()};
  }
  // Huge pages begin behind them.
  constexpr int64_t kHugePage = int64_t{2} << 20;
  arena_.spill(file, (in_file.bytes + kHugePage - 1) / kHugePage * kHugePage);
  layout_.bytes = arena_.spilled_bytes();
}

void Values::clear() {
  layout_ = {};
  layout_.bytes = arena_.spilled_bytes();
}

void Values::add(const std::string& name, const Type& type) {
  const auto spilled = spilled_.find(name);
  if (spilled == spilled_.end()) {
    layout_.add(name, type);
    arena_.grow_to(layout_.bytes);
    return;
  }
  check(type.size_bytes() <= spilled->second.bytes, "a spilled value has the room that it was given");
  if (!layout_.offsets.emplace(name, spilled->second.offset).second) {
    throw InvalidArgument("\"{}\" is declared twice", name);
  }
  layout_.types.emplace(name, type);
}

const Type& Values::type(const std::string& name) const {
  const auto it = layout_.types.find(name);
  if (it == layout_.types.end()) throw_unknown(name);
  return it->second;
}

void Values::throw_unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [known, type] : layout_.types) names.push_back(known);
  const std::string near = closest(name, names);
  throw InvalidArgument("no parameter or state is named \"{}\"{}", name,
                        near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
}

ValuePlace Values::place(const std::string& name) const {
  const Type& type = this->type(name);
  return {arena_, layout_.offsets.at(name), type};
}

TransferSlices& Values::slices() const {
  if (slices_ == nullptr) slices_ = std::make_shared<TransferSlices>(*arena_.device());
  return *slices_;
}

std::shared_ptr<const SlicedRead> Values::sliced_read(const std::string& name) const {
  const TensorView mark = place(name).mark();
  if (arena_.device() == nullptr) return nullptr;
  const std::shared_ptr<Event> given = arena_.device()->make_event();
  arena_.queue().record(*given);
  return std::make_shared<SlicedRead>(
      slices(), SlicedRead::Source{.there = static_cast<std::byte*>(mark.data), .type = mark.type(), .after = given});
}

std::unique_ptr<SlicedWrite> Values::sliced_write(const std::string& name) {
  const TensorView mark = place(name).mark();
  if (arena_.device() == nullptr) return nullptr;
  arena_.queue().synchronize();
  return std::make_unique<SlicedWrite>(slices(), static_cast<std::byte*>(mark.data), mark.type());
}

std::unique_ptr<DeviceSnapshot> Values::make_snapshot() const {
  if (arena_.device() == nullptr) return nullptr;
  return std::make_unique<DeviceSnapshot>(arena_, slices());
}

}  // namespace tessera::session
