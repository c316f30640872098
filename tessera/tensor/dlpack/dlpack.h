// DLPack: the struct by which libraries of one process hand each other tensors without a copy
// (https://dmlc.github.io/dlpack/latest). A struct is a void* here, so that a program may include whichever dlpack.h it
// likes, or none. It has one owner at a time: whoever made or got it, until from_dlpack() or another consumer takes it.
#pragma once

#include <cstdint>

#include "tessera/tensor/tensor.h"

namespace tessera {

// Says which struct a pointer leads to: DLManagedTensor, of before version 1.0, or DLManagedTensorVersioned.
enum class DlpackForm : uint8_t { kUnversioned, kVersioned };

// Says whether a consumer may copy elements that it cannot share, or must copy.
enum class DlpackCopy : uint8_t { kNever, kIfNeeded, kAlways };

// What the versioned form says beside the tensor: a consumer must not write to what is read-only, and shares what was
// copied for it with nobody.
struct DlpackFlags {
  bool is_read_only = false;
  bool is_copied = false;
};

// Returns a new struct of that form, which the caller owns. It shares the tensor's memory and keeps it until its
// deleter is called, from any thread. Throws InvalidArgument for what is read-only in the unversioned form, which
// cannot say so.
void* to_dlpack(const Tensor& tensor, DlpackForm form, const DlpackFlags& flags = {});

// Returns the tensor that a struct describes, and takes the struct: its deleter is called once, when the last tensor
// that shares the memory goes, by whichever thread that is; where elements were copied it is called at once. Shared is
// memory of the host that may be written, in which elements lie dense, row-major and at multiples of their size, and
// bools are bytes 0 and 1; other memory of the host is copied, bools as 0 and 1, which kNever refuses. kAlways shares
// what the struct says was copied for the consumer. Throws InvalidArgument for what kNever refuses, for memory that the
// host does not read, and for a struct that is no tensor of Tessera's: another version or dtype, several lanes, more
// than kMaxNdim dims, sizes and addresses that cannot be. Where it throws, the struct is still the caller's.
Tensor from_dlpack(void* managed, DlpackForm form, DlpackCopy copy = DlpackCopy::kIfNeeded);

// Calls the deleter of a struct that nobody has taken.
void release_dlpack(void* managed, DlpackForm form);

}  // namespace tessera
