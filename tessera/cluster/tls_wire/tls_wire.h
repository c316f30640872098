// TLS over TCP, for ranks on several hosts: all that they send each other is encrypted, and whoever changes a byte of
// it ends the job. It moves bytes, the collectives are comm's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/cluster/tls/tls_options.h"
#include "tessera/cluster/tls_wire/pair_meeting.h"
#include "tessera/comm/job_state.h"
#include "tessera/comm/store.h"
#include "tessera/comm/wire/wire.h"

namespace tessera::cluster {

// Connects every rank with its peers; all ranks call it. Bytes move while a rank waits, in the thread that waits: a
// wire has no thread of its own. `spin`: as in WaitOptions. `store` is used only here; `job` and `clock` outlive the
// wire. When the wire goes and the job has not failed, the peers hear that this rank has left. Throws as meet_peers()
// does.
std::shared_ptr<comm::Wire> make_tls_wire(const MeetingOptions& options, bool spin, comm::Store& store,
                                          comm::JobState& job, Clock& clock = Clock::system());

}  // namespace tessera::cluster
