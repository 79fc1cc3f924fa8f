#!/usr/bin/env python3
"""How ranks find each other, stay alike, and end together. One process is the whole job, or threads are the ranks."""

import concurrent.futures
import copy
import dataclasses
import datetime
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings
from unittest import mock

import torch
import torch.distributed as dist

import models
import ranks
import timed_tests
from one_process import OneProcess, pass_of, psd, sgd

# one_process has set the path.
from poseidon_torch import _library, c10d
from poseidon_torch._fresh_part import fresh_part, say_missing
from poseidon_torch._job import Daemon, machines_of
from poseidon_torch._norms import check_max_norms
from poseidon_torch._program_end import EndNotes
from poseidon_torch._untrained import Untrained, values_of

SECONDS = 60


class Wrapper(torch.optim.Optimizer):
    """Another optimizer's, without what torch's makes of its own."""

    def __init__(self, inner):  # pylint: disable=super-init-not-called
        self.inner = inner
        self.param_groups, self.state = inner.param_groups, inner.state

    def step(self, closure=None):
        """The other's."""
        return self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        """The other's."""
        self.inner.zero_grad(set_to_none)


def by_ranks(call, count, late):
    """What `call(rank)` returns, by rank; `late` calls it when the others have taken what they find."""

    def of_rank(rank):
        time.sleep(0.1 if rank == late else 0)
        return call(rank)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(of_rank, range(count)))


class Job(OneProcess):
    def test_a_part_of_a_store_that_dead_ranks_have_not_written_to(self):
        store = dist.HashStore()
        for late in (1, 0, 2, 0):
            parts = by_ranks(lambda rank: fresh_part(store, rank, 3, SECONDS), 3, late)
            self.assertEqual([part.add("ranks", 1) for part in parts], [1, 2, 3])

    def test_who_has_not_come_to_the_store_is_named(self):
        with self.assertRaisesRegex(
            psd.DeadlineExceeded, "of 3 ranks .* after 0.01 s: 1, 2;"
        ) as seen:
            fresh_part(dist.HashStore(), 0, 3, 0.01)
        self.assertEqual(seen.exception.exit_code, 4)

    def test_who_says_why_it_does_not_come_to_the_store_is_named(self):
        def come(rank):
            if rank == 1:
                return say_missing(store, rank, "no file m\udcfcnchen")
            with self.assertRaises(psd.PeerLost) as lost:
                fresh_part(store, rank, 3, SECONDS)
            return str(lost.exception), lost.exception.exit_code

        said = "rank 1 has ended before it joined: no file m\\udcfcnchen", 3
        for late in (0, 1):
            store = dist.HashStore()
            self.assertEqual(by_ranks(come, 3, late), [said, None, said])

    def test_who_ends_before_it_has_joined_says_so_in_a_store_of_its_own_attempt(self):
        for agent, said in (("False", True), ("True", False)):
            psd.init(out=self._scratch.name)
            job = psd._process.job  # pylint: disable=protected-access
            job.place = dataclasses.replace(job.place, rank=1)
            with mock.patch.dict(os.environ, {"TORCHELASTIC_USE_AGENT_STORE": agent}):
                try:
                    raise FileNotFoundError("train.lmdb")
                except FileNotFoundError:
                    psd.shutdown()
            word = job._store.compare_set("ask/1", "", "-").decode()
            self.assertEqual(word.endswith("ended by FileNotFoundError: train.lmdb"), said, word)

    def test_a_process_group_that_does_not_call_the_dead_ranks(self):
        store = dist.HashStore()

        def sum_of(rank):
            group = c10d.PoseidonProcessGroup(store, rank, 2, datetime.timedelta(seconds=SECONDS))
            numbers = torch.full((1 << 14,), rank + 1.0)
            group.allreduce([numbers]).wait()
            group.shutdown()
            return numbers.unique().tolist()

        for late in (1, 0):
            self.assertEqual(by_ranks(sum_of, 2, late), [[3.0], [3.0]])

    def test_ranks_that_nobody_has_numbered_by_machine(self):
        one, other = "10.0.0.1", "10.0.0.2"
        four = [(0, one), (1, one), (0, other), (1, other)]
        self.assertEqual(machines_of(four, 2), [one, other])
        for places, local_workers, said in (
            (
                four,
                4,
                "rank 2 has LOCAL_RANK 0 at 10.0.0.2; .* LOCAL_RANK 2 at 10.0.0.1, beside rank 0",
            ),
            ([(0, one), (1, other)], 2, "rank 1 has LOCAL_RANK 1 at 10.0.0.2; .* at 10.0.0.1"),
            (
                [(0, one), (0, other), (1, one), (1, other)],
                2,
                "set LOCAL_RANK and LOCAL_WORLD_SIZE",
            ),
        ):
            with self.subTest(said), self.assertRaisesRegex(psd.ConfigError, said):
                machines_of(places, local_workers)

    def test_what_is_frozen_is_the_same_on_all_ranks(self):
        def model_of(value):
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
            model[1].requires_grad_(False).weight.fill_(value)
            model.register_buffer("means", torch.zeros(3))
            model.register_buffer("nothing", torch.zeros(0))
            model.register_buffer("sparse", torch.eye(3).to_sparse() * value)
            return model

        first = model_of(1.0)
        torch.nn.init.zeros_(first[1].bias)
        same = copy.deepcopy(first)
        torch.nn.init.ones_(same[0].weight)  # which rank 0's will replace
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Untrained(same).compare(Untrained(first).text())
        same.means[0] = -0.0
        with self.assertWarnsRegex(UserWarning, "buffers are not as on rank 0: means;"):
            Untrained(same).compare(Untrained(first).text())
        for other in (model_of(2.0), first[0]):
            said = "frozen parameters are not as on rank 0: 1.weight, 1.bias;"
            with self.assertRaisesRegex(psd.ConfigError, said):
                Untrained(other).compare(Untrained(first).text())

    def test_deadlines_and_servers_that_cannot_be(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        for said, options in (
            (
                "deadline_seconds is inf; it must be a number from 0.1",
                {"deadline_seconds": float("inf")},
            ),
            ("deadline_seconds is nan", {"deadline_seconds": float("nan")}),
            ("servers is 0; it must be a whole number from 1", {"servers": 0}),
            ("servers is '2'; it must be a whole number", {"servers": "2"}),
            ("servers is 2.5; it must be a whole number", {"servers": 2.5}),
        ):
            with self.subTest(said):
                self.expect_refusal(said, model, sgd(model), **options)

    def test_a_key_file_that_is_an_unset_variable(self):
        with self.assertRaisesRegex(psd.ConfigError, "key_file is empty"):
            psd.init(key_file="")

    def test_rank_and_size_after_the_end(self):
        for step in (lambda: None, lambda: pass_of(model, optimizer)):
            self.init()
            model = torch.nn.Linear(4, 4)
            optimizer = psd.distribute(model, sgd(model))
            step()
            psd.shutdown()
            self.assertEqual((psd.rank(), psd.size()), (0, 1))
            self.expect_refusal("call poseidon_torch.init() first", model, optimizer)

    def test_the_trace_where_daemons_run_already(self):
        # Not every file system's names are UTF-8.
        folder = pathlib.Path(self._scratch.name, os.fsdecode(b"\xe9"))
        folder.mkdir()
        config = folder / "config.prototxt"
        config.write_text(
            f"cluster {{ workers: 1 servers: 1 scheduler_port: {ranks.free_port()} }} training {{ trace: true }}"
        )
        for role in ("scheduler", "server"):
            command = [str(ranks.ROOT / f"build/bin/poseidon_{role}"), f"--config={config}"]
            daemon = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
            self.addCleanup(daemon.wait)
            self.addCleanup(daemon.kill)
        psd.init(str(config), out=str(folder / "traces"))
        self.addCleanup(psd.shutdown)
        model = torch.nn.Linear(4, 4)
        pass_of(model, psd.distribute(model, sgd(model)))
        psd.shutdown()
        self.assertTrue((folder / "traces/worker-0.trace.json").exists())

    def test_an_optimizer_begins_the_same_on_all_ranks(self):
        model = torch.nn.Linear(4, 4)

        def adamw_of(**options):
            return torch.optim.AdamW(model.parameters(), **options)

        def begun_with(optimizer):
            return Untrained(model, values_of(optimizer, model))

        first = begun_with(adamw_of()).text()
        begun_with(adamw_of(foreach=False)).compare(first)
        stepped, loaded = adamw_of(), adamw_of()
        pass_of(model, stepped)
        loaded.load_state_dict(copy.deepcopy(stepped.state_dict()))
        begun_with(loaded).compare(begun_with(stepped).text())
        for said, optimizer in (
            ("group 0: lr;", adamw_of(lr=0.1)),
            (r"group 0: betas\[0\];", adamw_of(betas=(0.8, 0.999))),
            ("weight: step, weight: exp_avg, weight: exp_avg_sq and 3 more;", stepped),
        ):
            with self.subTest(said), self.assertRaisesRegex(psd.ConfigError, f"rank 0: {said}"):
                begun_with(optimizer).compare(first)

    def test_rows_that_a_forward_pass_scales(self):
        self.init()
        parts = [torch.nn.Linear(4, 4), torch.nn.EmbeddingBag(4, 4, max_norm=1.0)]
        model = torch.nn.Sequential(*parts)
        with mock.patch.object(psd, "size", lambda: 2):
            self.expect_refusal("1 is an EmbeddingBag with max_norm", model, sgd(model))
            options = {"update": "server"}
            self.expect_refusal("1 is an EmbeddingBag with max_norm", model, sgd(model), **options)
        psd.distribute(model, sgd(model))  # alone, nobody has other rows

    def test_rows_that_a_forward_pass_of_torch_jit_scales(self):
        for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
            rows = torch.tensor([[0, 1]])
            made_by = torch.jit.script, lambda part: torch.jit.trace(part, (rows,))
            for make in made_by:
                model = torch.nn.Sequential(make(kind(4, 4, max_norm=1.0)))
                with self.assertRaisesRegex(psd.ConfigError, f"0 is an {kind.__name__} with max"):
                    check_max_norms(model, 2)
                check_max_norms(torch.nn.Sequential(make(kind(4, 4))), 2)
            check_max_norms(torch.jit.trace(models.RowsByWeight(kind), (torch.ones(2, 4),)), 2)

    def test_a_step_of_passes_that_nobody_has_heard_of(self):
        for options in ({}, {"overlap": "forward"}, {"update": "server"}):
            self.init()
            model = torch.nn.Linear(4, 4)
            optimizer = psd.distribute(model, sgd(model), **options)
            for _ in range(2):
                with psd.no_sync():
                    model(torch.ones(2, 4)).sum().backward()
                with self.assertRaisesRegex(psd.ConfigError, "after a pass in no_sync"):
                    optimizer.step()
                optimizer.zero_grad()
                optimizer.step()  # of nothing
                with psd.no_sync():
                    model(torch.ones(2, 4)).sum().backward()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
            psd.shutdown()

    def test_a_step_by_another_optimizer_of_passes_that_nobody_has_heard_of(self):
        for options in ({}, {"overlap": "forward"}, {"update": "server"}):
            self.init()
            model, criterion = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            optimizer = sgd(model) if options else Wrapper(sgd(model))
            optimizer = psd.distribute(model, optimizer, **options)
            others = [sgd(model), Wrapper(sgd(model))]
            with psd.no_sync():
                criterion(model(torch.ones(2, 4))).sum().backward()
            for other in others if options else [*others, optimizer]:
                with self.assertRaisesRegex(psd.ConfigError, "after a pass in no_sync"):
                    other.step()
            sgd(criterion).step()
            optimizer.zero_grad()
            pass_of(model, optimizer)
            psd.shutdown()
            for other in others:
                other.step()

    def test_a_step_in_the_midst_of_a_backward_pass(self):
        """As where each parameter has an optimizer of its own, which a hook calls so that gradients take no memory."""
        for options in ({}, {"overlap": "forward"}):
            self.init()
            model, criterion = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            optimizer = psd.distribute(model, sgd(model), **options)
            pass_of(model, optimizer)
            stepped = []

            def step_own(parameter):
                torch.optim.SGD([parameter], lr=0.1).step()
                stepped.append(parameter)

            hooks = [
                parameter.register_post_accumulate_grad_hook(step_own)
                for net in (criterion, model)
                for parameter in net.parameters()
            ]
            with self.assertRaisesRegex(psd.ConfigError, "step.. in the midst of a backward pass"):
                criterion(model(torch.ones(2, 4))).sum().backward()
            # Those that nobody exchanges are the program's affair.
            self.assertEqual(len(stepped), 2)
            for hook in hooks:
                hook.remove()
            psd.shutdown()

    def test_a_shutdown_in_the_midst_of_a_backward_pass_is_refused(self):
        """As by a signal's handler, while a gradient is copied to memory that it would free."""
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        psd.distribute(model, sgd(model))
        plain = copy.deepcopy(model)
        refused = []

        def handle(_gradient):
            with self.assertRaisesRegex(
                psd.PoseidonError, "while another call is under way"
            ) as said:
                psd.shutdown()
            refused.append(said)

        hidden = model[0](torch.ones(2, 4))
        hidden.register_hook(handle)
        exchange = psd._process.exchange  # pylint: disable=protected-access
        # Asked of each parameter before its mean is copied.
        with mock.patch.object(exchange, "_is_used", lambda _: handle(None) is None):
            model[1](hidden).sum().backward()
        self.assertEqual(len(refused), 1 + 4)
        plain(torch.ones(2, 4)).sum().backward()
        for ours, theirs in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad)
        psd.shutdown()

    def test_a_backward_pass_that_a_lost_worker_has_ended(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        psd.distribute(model, sgd(model))
        session = psd._process.session  # pylint: disable=protected-access
        lost = mock.Mock(side_effect=psd.PeerLost("worker 1 is silent", 3))
        names = "gradient_ready", "wait_fresh", "finish"
        hidden = model[0](torch.ones(2, 4))
        # When the first gradient has left. From then on each call raises what has ended the session.
        hidden.register_hook(lambda _: session.__dict__.update(dict.fromkeys(names, lost)))
        for again in (lambda: model[1](hidden).sum().backward(), psd.shutdown):
            with self.assertRaisesRegex(psd.PeerLost, "worker 1 is silent"):
                again()

    def test_a_backward_pass_that_was_left_before_it_has_sent_anything(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        psd.distribute(model, sgd(model))
        bad = mock.Mock(side_effect=ValueError("bad"))
        # After the one that counts the layer's gradients, of which there are two.
        hooks = [one.register_post_accumulate_grad_hook(bad) for one in model.parameters()]
        with self.assertRaisesRegex(ValueError, "bad"):
            model(torch.ones(2, 4)).sum().backward()
        for hook in hooks:
            hook.remove()
        with self.assertRaisesRegex(psd.ConfigError, "left by an exception.* worker can't go on;"):
            model(torch.ones(2, 4)).sum().backward()
        psd.shutdown()

    def test_a_model_that_becomes_float64_later(self):
        inputs = torch.ones(2, 4)
        for options in ({}, {"example": inputs, "policy": "ALL_SFB"}, {"overlap": "forward"}):
            with self.subTest(**options):
                self.init()
                model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
                psd.distribute(model, sgd(model), **options)
                model.double()
                with self.assertRaisesRegex(psd.ConfigError, "layer '1' has become float64"):
                    model(inputs.double()).sum().backward()
                psd.shutdown()  # nothing has been sent

    def test_an_optimizer_that_gets_parameters_later(self):
        for options in ({}, {"overlap": "forward"}):
            self.init()
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
            optimizer = psd.distribute(model, sgd(model[0]), **options)
            optimizer.add_param_group({"params": model[1].parameters()})
            before = model[1].weight.detach().clone()
            pass_of(model, optimizer)
            psd.synchronize()
            self.assertFalse(model[1].weight.equal(before))
            optimizer.add_param_group({"params": torch.nn.Linear(2, 3).parameters()})
            with self.assertRaisesRegex(psd.ConfigError, r"group 2 .* \(3, 2\) that is not the m"):
                pass_of(model, optimizer)
            psd.shutdown()

    def test_a_second_job_of_processes_whose_store_no_agent_keeps(self):
        with ranks.Ranks("two_jobs.py", 2) as program:
            for rank, result in enumerate(program.wait(2 * SECONDS)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
                self.assertIn("two jobs", result.output)

    def test_diloco_goes_on_from_a_checkpoint(self):
        def rounds(model, count, **options):
            self.init()
            optimizer = psd.DiLoCo(model, sgd(model), every=2, **options)
            for _ in range(2 * count):
                pass_of(model, optimizer)
            state = psd.outer_state()
            psd.shutdown()
            return state

        whole = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        with torch.no_grad():
            for one in whole.parameters():
                one.mul_(0.1)  # large ones may run away, and numbers that are none are not equal
        parts, loaded = copy.deepcopy(whole), copy.deepcopy(whole)
        rounds(whole, 4)
        checkpoint = io.BytesIO()
        torch.save(rounds(parts, 2), checkpoint)
        state = torch.load(io.BytesIO(checkpoint.getvalue()), weights_only=True)
        rounds(loaded, 2, outer_state=state)
        for one, other in zip(whole.parameters(), loaded.parameters()):
            self.assertTrue(one.isfinite().all() and one.equal(other))
        self.init()
        other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 5))
        with self.assertRaisesRegex(
            psd.ConfigError, r"1.weight has shape \(4, 4\) there, and \(5,"
        ):
            psd.DiLoCo(other, sgd(other), outer_state=state)
        with self.assertRaisesRegex(
            psd.ConfigError, r"outer_state\['0.weight'\] is no outer value"
        ):
            psd.DiLoCo(other, sgd(other), outer_state=other.state_dict())
        psd.distribute(other, sgd(other))
        with self.assertRaisesRegex(psd.ConfigError, "outer_state is of DiLoCo"):
            psd.outer_state()

    def test_a_library_of_another_build(self):
        with self.assertRaisesRegex(ImportError, "another build .*poseidon_of_tomorrow.* build"):
            _library.function_of("poseidon_of_tomorrow")

    def test_a_daemon_whose_log_is_emptied_and_then_gone(self):
        with tempfile.TemporaryDirectory() as directory:
            log, end = pathlib.Path(directory, "daemon.log"), pathlib.Path(directory, "end")
            script = f"echo first; until [ -e {end} ]; do sleep 0.01; done; echo last; exit 3"
            daemon = Daemon("server", ["/bin/sh", "-c", script], log)
            while not log.exists() or not log.read_text():
                time.sleep(0.01)
            self.assertEqual(log.read_text(), "first\n")
            os.truncate(log, 0)
            end.touch()
            daemon.wait(SECONDS)
            self.assertEqual(log.read_text(), "last\n")
            with self.assertRaisesRegex(psd.PoseidonError, "server exited with code 3:\n  last"):
                daemon.check()
            log.unlink()
            with self.assertRaisesRegex(psd.PoseidonError, "code 3:\n  its log can't be read: "):
                daemon.check()

    def test_a_reason_with_what_is_no_text_is_told(self):
        """As a file's name that is no UTF-8, which Python keeps as half of a character."""
        self.init()
        model = torch.nn.Linear(4, 4)
        psd.distribute(model, sgd(model))
        with mock.patch.object(_library.LIB, "poseidon_session_fail", return_value=0) as fail:
            try:
                raise ValueError("bad image " + b"m\xfcnchen.png".decode(errors="surrogateescape"))
            except ValueError:
                psd.shutdown()
        said = b"its program was ended by ValueError: bad image m\\udcfcnchen.png"
        self.assertEqual(fail.call_args.args[1], said)

    def test_an_exit_does_not_hide_the_exception_that_brought_it_about(self):
        with mock.patch.object(sys, "exit", sys.exit), mock.patch.object(sys, "excepthook"):
            notes = EndNotes()
            with self.assertRaises(SystemExit):
                try:
                    raise ValueError("record 4711 is broken")
                except ValueError:
                    sys.exit(1)
            for code, noted in (
                (1, "ValueError: record 4711 is broken"),
                (2, "SystemExit: 2"),
                (5, "SystemExit: 5"),
                (0, None),
            ):
                with self.assertRaises(SystemExit):
                    sys.exit(code)
                self.assertEqual(notes.failure, noted)


if __name__ == "__main__":
    timed_tests.main()
