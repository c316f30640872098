// Whether the ranks of a job give the same to a step that they are about to make together.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/base/function_ref.h"
#include "tessera/comm/communicator.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

// Every rank of the group calls it before such a step, with the types of what it gives: one all_reduce of a few words,
// whatever they are. Afterwards each of the numbers, 6 at most, is on every rank what it is at most on any. Throws
// InvalidArgument on every rank, saying which ranks give what, where they do not give the same; the ranks may go on
// then.
void agree_on_step(comm::Communicator& group, const std::string& step, const std::string& given,
                   std::span<int64_t> numbers = {});

// The same before a step on one batch, which every rank has whole and takes its part of: compares the rows, too, by a
// checksum of their bytes. Throws InvalidArgument on every rank, saying which ranks' rows are not those of the first.
// `step` says what step it is, where that throws: else nothing is allocated for dense columns.
void agree_on_batch(comm::Communicator& group, FunctionRef<std::string()> step, const std::string& given,
                    std::span<const TensorView> batch);

}  // namespace tessera::session
