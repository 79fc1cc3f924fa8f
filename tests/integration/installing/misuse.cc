// Makes the mistakes that a program can make with a Session, writes what it is told to the file
// that the first argument names, and trains on. With "give-up" it leaves the job instead.
#include <poseidon/session.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <string>

int main(int count, char** words) {
  const std::string argument = count > 1 ? words[1] : "";
  poseidon::Session session(poseidon::SessionOptions::FromEnvironment());
  if (argument == "give-up") return session.rank();

  std::ofstream said(argument);
  const auto refused = [&said](const std::function<void()>& mistake) {
    try {
      mistake();
      said << "nothing" << std::endl;
    } catch (const poseidon::Error& error) {
      said << error.what() << std::endl;
    }
  };
  refused([&] { session.values(0); });
  refused([&] { session.Begin(); });
  refused([&] { session.Declare({}); });
  session.Declare({.layers = {{.name = "only", .blobs = {{.shape = {2}}}}}, .iterations = 2});
  refused([&] { session.RestoreOptimizerState({1, 2, 3}); });
  refused([&] { session.values(1); });
  refused([&] { session.mean_gradient(0); });
  session.Begin();
  for (int iteration = 0; iteration < 2; ++iteration) {
    session.WaitFresh(0);
    if (iteration == 0) refused([&] { session.EndIteration(); });
    session.GradientReady(0);
    if (iteration == 0) refused([&] { session.GradientReady(0); });
    if (iteration == 0) refused([&] { session.Finish(); });
    session.EndIteration();
    if (iteration == 0) refused([&] { session.Finish(); });
  }
  session.Finish();
  refused([&] { session.GradientReady(0); });
}
