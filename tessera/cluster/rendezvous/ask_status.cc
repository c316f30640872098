#include "tessera/cluster/rendezvous/ask_status.h"

#include <asio/io_context.hpp>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/rendezvous/connection.h"
#include "tessera/cluster/rendezvous/connector.h"

namespace tessera::cluster::rendezvous {

namespace {

// `what_fails`: what the scheduler does not do where it does not answer.
AnsweredStatus ask(const HostPort& scheduler, const TlsOptions& tls, const Message& question, int64_t timeout_ms,
                   const char* what_fails) {
  asio::io_context loop{1};
  Connector connector(loop, scheduler, make_tls_context(tls, TlsSide::kClient, std::time(nullptr)));
  std::optional<AnsweredStatus> answered;
  std::optional<std::string> why;  // the first reason: an end follows each refusal
  std::shared_ptr<Connection> connection;
  const auto stop = [&](const std::string& reason) {
    if (!why) why = reason;
    loop.stop();
  };
  connector.connect(timeout_ms, [&](std::shared_ptr<Connection> made, const std::string& reason) {
    if (!made) return stop(reason);
    connection = std::move(made);
    connection->start({.open = [&] { connection->send(question, 0); },
                       .message =
                           [&](uint64_t generation, const Message& message) {
                             const auto* status = std::get_if<JobStatus>(&message);
                             const auto* refused = std::get_if<Refused>(&message);
                             if (status != nullptr) answered = {*status, generation};
                             if (status != nullptr || refused != nullptr) {
                               stop(refused != nullptr ? refused->reason : "");
                             }
                           },
                       .end = stop});
  });
  loop.run_for(std::chrono::milliseconds(timeout_ms));
  stop("it has not answered in time");  // the first reason, where nothing has ended the loop; closing has none to tell
  if (connection) connection->close("");
  if (!answered) throw IoError("the scheduler at {} {}: {}", scheduler.text(), what_fails, printable(*why));
  return *std::move(answered);
}

}  // namespace

AnsweredStatus ask_status(const HostPort& scheduler, const TlsOptions& tls, int64_t timeout_ms) {
  return ask(scheduler, tls, AskStatus{}, timeout_ms, "does not say how its job is");
}

AnsweredStatus ask_resize(const HostPort& scheduler, const TlsOptions& tls, int num_ranks, int64_t timeout_ms) {
  return ask(scheduler, tls, ResizeJob{static_cast<uint32_t>(num_ranks)}, timeout_ms, "does not resize its job");
}

}  // namespace tessera::cluster::rendezvous
