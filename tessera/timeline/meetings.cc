#include "tessera/timeline/meetings.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tessera::timeline {
namespace {

// Equal for the spans of one meeting. A message has no graph, and is told by its text.
using MeetingKey = std::tuple<int64_t, uint32_t, std::string, std::vector<int>, int, int>;

MeetingKey key_of(const SpanName& name, const TimedSpan& span) {
  return {span.step,  span.run,  name.kind == SpanKind::kMessage ? name.text : name.graph,
          name.ranks, name.lane, name.number};
}

}  // namespace

int64_t Meeting::waited_ns(const MeetingMember& member) const {
  return std::clamp<int64_t>(last_begin_ns() - member.begin_ns, 0, member.end_ns - member.begin_ns);
}

std::vector<Meeting> find_meetings(const JobTimeline& job) {
  std::map<MeetingKey, Meeting> found;
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const RankTimeline& rank = job.ranks[r];
    for (size_t l = 0; l < rank.lanes.size(); ++l) {
      const auto& spans = rank.lanes[l].spans;
      for (size_t s = 0; s < spans.size(); ++s) {
        const SpanName& name = rank.names[spans[s].name];
        if (name.number < 0) continue;
        Meeting& meeting = found[key_of(name, spans[s])];
        const bool is_first = meeting.members.empty();
        // Of a rank that has begun anew within the step, the later one.
        if (!is_first && meeting.members.back().rank == r) meeting.members.pop_back();
        meeting.text = name.text;
        meeting.kind = name.kind;
        meeting.step = spans[s].step;
        meeting.bytes = std::max(meeting.bytes, name.bytes);
        meeting.meets = name.meets && (is_first || meeting.meets);
        meeting.members.push_back({r, l, s, spans[s].begin_ns, spans[s].end_ns});
        meeting.is_complete = meeting.members.size() == name.ranks.size();
      }
    }
  }
  std::vector<Meeting> meetings;
  for (auto& [key, meeting] : found) {
    const auto latest = std::ranges::max_element(meeting.members, {}, &MeetingMember::begin_ns);
    meeting.late = static_cast<size_t>(latest - meeting.members.begin());
    meetings.push_back(std::move(meeting));
  }
  const auto begin_of = [](const Meeting& meeting) {
    return std::ranges::min(meeting.members, {}, &MeetingMember::begin_ns).begin_ns;
  };
  std::ranges::stable_sort(meetings, {}, begin_of);
  return meetings;
}

}  // namespace tessera::timeline
