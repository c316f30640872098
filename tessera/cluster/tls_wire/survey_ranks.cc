#include "tessera/cluster/tls_wire/survey_ranks.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/base/json/bounded_json.h"

namespace tessera::cluster {
namespace {

using nlohmann::json;

// Names that the job's own do not meet.
class NamedStore final : public comm::Store {
 public:
  explicit NamedStore(comm::Store& store) : store_(store) {}
  void set(const std::string& name, const std::string& value) override { store_.set(own(name), value); }
  std::string get(const std::string& name, int64_t timeout_ms) override { return store_.get(own(name), timeout_ms); }
  std::optional<std::string> find(const std::string& name, int64_t limit_ms) override {
    return store_.find(own(name), limit_ms);
  }
  void forget(const std::string& name) override { store_.forget(own(name)); }

 private:
  static std::string own(const std::string& name) { return "survey/" + name; }

  comm::Store& store_;
};

constexpr const char* kReported = "reported";
std::string name_of_words(int rank) { return fmt::format("words/{}", rank); }
std::string name_of_read(int rank) { return fmt::format("read/{}", rank); }
std::string name_of_heard(int rank) { return fmt::format("heard/{}", rank); }

// Those whom this rank has not met.
std::vector<Gap> gaps_of(const MeetingOptions& meeting, comm::Store& store, Clock& clock) {
  std::vector<Gap> gaps;
  try {
    meet_peers(meeting, store, clock);
  } catch (const UnmetPeers& unmet) {
    for (const UnmetPeer& peer : unmet.peers()) gaps.push_back({meeting.rank, peer.rank, peer.address, peer.why});
  }
  return gaps;
}

std::string print(const std::string& words, const std::vector<Gap>& gaps) {
  json of_gaps = json::array();
  for (const Gap& gap : gaps) of_gaps.push_back({{"peer", gap.peer}, {"address", gap.address}, {"why", gap.why}});
  return json{{"words", words}, {"gaps", of_gaps}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Ranks know the job's secret, and are taken at their word; what is none of it is their fault.
void add_words(Survey& survey, int rank, const std::string& text) {
  const auto fail = [rank] {
    throw IoError("rank {} says of its host what cannot be read: do all hosts have one version of Tessera?", rank);
  };
  const json said = parse_json_or_discard<json>(text, {.name = "survey"});
  if (said.is_discarded()) fail();
  try {
    survey.words[as_index(rank)] = said.at("words").get<std::string>();
    for (const json& gap : said.at("gaps")) {
      survey.gaps.push_back(
          {rank, gap.at("peer").get<int>(), gap.at("address").get<std::string>(), gap.at("why").get<std::string>()});
    }
  } catch (const json::exception&) {
    fail();
  }
}

}  // namespace

void survey_ranks(const Surveyor& surveyor, MeetingOptions meeting, comm::Store& store, Clock& clock) {
  NamedStore named(store);
  meeting.ends_together = true;
  const std::vector<Gap> own = gaps_of(meeting, named, clock);
  named.set(name_of_words(meeting.rank), print(surveyor.words(meeting.rank), own));
  Survey survey{.rank = meeting.rank, .size = meeting.place.size, .words = {}, .gaps = {}, .missing = ""};
  survey.words.resize(as_index(survey.size));
  // One that has met its peers waits for the others' meetings first.
  const int64_t limit_ms = 3 * meeting.timeout_ms;
  for (int rank = 0; rank < survey.size; ++rank) add_words(survey, rank, named.get(name_of_words(rank), limit_ms));
  if (survey.gaps.empty()) return;
  // Whoever ends takes the store from the others: first everybody has heard everybody, then all have heard that rank 0
  // has reported.
  const auto unless_over = [&](const auto& f) {
    try {
      f();
    } catch (const IoError&) {
      // Another one has ended, and with it the job: there is nothing more to wait for.
    }
  };
  if (meeting.rank != 0) {
    unless_over([&] {
      named.set(name_of_read(meeting.rank), "1");
      named.get(kReported, limit_ms);
    });
    const int code = surveyor.report(survey);
    unless_over([&] { named.set(name_of_heard(meeting.rank), "1"); });
    throw SurveyEnd(code);
  }
  unless_over([&] {
    for (int rank = 1; rank < survey.size; ++rank) named.get(name_of_read(rank), limit_ms);
  });
  const int code = surveyor.report(survey);
  unless_over([&] {
    named.set(kReported, "1");
    for (int rank = 1; rank < survey.size; ++rank) named.get(name_of_heard(rank), limit_ms);
  });
  throw SurveyEnd(code);
}

}  // namespace tessera::cluster
