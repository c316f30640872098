// What arrives at a dashboard's port, and what ranks tell it.
#include "tessera/cluster/dashboard/http_head.h"
#include "tessera/cluster/ranks/training_figures.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

bool is_same_head(const cluster::HttpHead& a, const cluster::HttpHead& b) {
  return a.method == b.method && a.path == b.path && a.query == b.query && a.host == b.host &&
         a.authorization == b.authorization && a.is_1_0 == b.is_1_0;
}

bool head_parses(const std::string& bytes) {
  const auto read = cluster::parse_http_head(bytes);
  if (!read.head) {
    if (read.status < 400 || read.status > 505) throw Broken("a head is refused with no status of a refusal");
    return false;
  }
  const size_t end = cluster::find_http_head_end(bytes);
  if (end != bytes.size()) throw Broken("a head that was read does not end where it ends");
  const auto again = cluster::parse_http_head(cluster::print_http_head(*read.head));
  if (!again.head) throw Broken("what was parsed and printed does not parse");
  if (!is_same_head(*again.head, *read.head)) throw Broken("what was parsed and printed parses differently");
  const auto name = cluster::name_in_host(read.head->host);
  if (name && cluster::name_in_host(name->find(':') == std::string::npos ? *name : "[" + *name + "]") != name) {
    throw Broken("a host's name has another name");
  }
  if (cluster::value_in_query(read.head->query, "token").size() > read.head->query.size()) {
    throw Broken("a value is longer than its query");
  }
  return true;
}

// Lines and words change places and characters; half of what is made ends as a head does.
std::string mutate_head(const std::string& head, Draws& draws) {
  std::string made = draws.one_in(2) ? mutate_bytes(head, draws) : mutate_lines(head, draws);
  if (draws.one_in(2)) {
    while (made.ends_with('\n') || made.ends_with('\r')) made.pop_back();
    made += "\r\n\r\n";
  }
  return made;
}

bool figures_parse(const std::string& text) {
  const auto figures = cluster::parse_figures(text);
  if (!figures) return false;
  const std::string printed = cluster::print_figures(*figures);
  if (printed.size() > cluster::kMaxFiguresBytes) throw Broken("figures that are longer than they may be");
  const auto again = cluster::parse_figures(printed);
  if (!again) throw Broken("what was parsed and printed does not parse");
  if (cluster::print_figures(*again) != printed) throw Broken("what was parsed and printed parses differently");
  return true;
}

}  // namespace

std::vector<Target> dashboard_targets() {
  const std::vector<std::string> heads = {
      "GET /?token=00112233445566778899aabbccddeeff HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nAccept: text/html\r\n\r\n",
      "GET /state.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0011\r\nContent-Length: 0\r\n\r\n",
      "HEAD /metrics?a&b=c HTTP/1.0\r\n\r\n", "POST / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n"};
  const std::vector<std::string> figures = {
      R"({"epoch":1,"epochs":2,"step":12,"steps_per_epoch":10,"loss":2.25,"learning_rate":1e-05,"rows_per_second":10.5,)"
      R"("resident_bytes":1048576,"arena_bytes":4096,"mode":"data_parallel","plan":"optimizer shards",)"
      R"("checkpoint":"run/job-1_10.ckpt","checkpoint_step":10,"doing":"matmul \"fc\"","waits_for":2,)"
      R"("waits_in":"barrier","slow_rank":1,"slow_percent":40})",
      R"({"step":3,"loss":"NaN","ended":"failed"})", "{}"};
  return {{"http_head", heads, mutate_head, head_parses}, {"training_figures", figures, mutate_json, figures_parse}};
}

}  // namespace tessera::fuzz
