// SlicedWrite: a value in a device's memory, as the host writes it: region by region, through slices, beside whatever
// makes the next elements.
#pragma once

#include <cstddef>
#include <optional>
#include <shared_mutex>
#include <span>

#include "tessera/checkpoint/format/element_target.h"
#include "tessera/session/values/transfer_slices.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

class SlicedWrite final : public checkpoint::ElementTarget {
 public:
  // A value of that type, which lies at `there` dense and row-major. It and the slices outlive this. What came before
  // in other queues is done.
  SlicedWrite(TransferSlices& slices, std::byte* there, const Type& type);
  // Waits for what is under way.
  ~SlicedWrite() override;
  SlicedWrite(const SlicedWrite&) = delete;
  SlicedWrite& operator=(const SlicedWrite&) = delete;

  // Regions whose elements lie scattered in the value are put together on the host first, in memory as large as the
  // value.
  void write(const checkpoint::Region& region, std::span<const std::byte> elements) override;
  // Returns when all elements are in their places. Throws where the device has failed.
  void finish();

 private:
  void gather_on_host();

  TransferSlices& slices_;
  std::byte* there_;
  Type type_;
  // Who writes shares it; who puts the value on the host has it alone.
  std::shared_mutex mutex_;
  std::optional<Tensor> on_host_;  // the whole value, once regions are gathered
};

}  // namespace tessera::session
