// Looks which ranks of a job reach each other, as a wire would connect them.
#pragma once

#include "tessera/cluster/ranks/survey.h"
#include "tessera/cluster/tls_wire/pair_meeting.h"

namespace tessera::cluster {

// All ranks call it, with a store that all of them reach. Each meets the others as meet_peers() has it and hangs up.
// Returns where all have met. Where some have not, each rank's surveyor reports, rank 0's first; then throws SurveyEnd.
// Throws as meet_peers() does for what is no gap, and as the store does where a rank says nothing for three
// times the meeting's.
void survey_ranks(const Surveyor& surveyor, MeetingOptions meeting, comm::Store& store, Clock& clock = Clock::system());

}  // namespace tessera::cluster
