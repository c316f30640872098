#include "tessera/session/executable.h"

#include "tessera/base/error.h"
#include "tessera/executor/executor.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::session {

executor::Executor& Executable::executor() {
  throw InvalidArgument("a step of a pipeline has an executor for each phase and slot: it has none to look at");
}

void Executable::throw_first_bad_index(const std::string& of_this_rank) const {
  const auto texts = gather_texts(context_.world(), of_this_rank, "comparing bad indices");
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) throw executor::InvalidIndex(fmt::format("rank {}: {}", rank, texts[rank]));
  }
}

}  // namespace tessera::session
