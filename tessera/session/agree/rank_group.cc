#include "tessera/session/agree/rank_group.h"

namespace tessera::session {

ops::RankGroup rank_group(cluster::Context& context, const std::string& name) {
  const comm::Communicator& group = context.group(name);
  return {.name = name, .ranks = group.ranks(), .own = group.rank()};
}

}  // namespace tessera::session
