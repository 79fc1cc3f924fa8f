#!/usr/bin/env python3
"""What can't work is refused with a sentence that says what to do. One process is the whole job."""

import copy
import gc
import multiprocessing
import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings
from unittest import mock

import torch
from torch.utils.checkpoint import checkpoint

import ranks
import timed_tests
from one_process import OneProcess, pass_of, psd, sgd

# one_process has set the path.
from poseidon_torch._norms import check_norms


def in_a_fork(queue):
    try:
        psd._process.session.wait_fresh(0)  # pylint: disable=protected-access
        queue.put("nothing was said")
    except psd.PoseidonError as error:
        queue.put(str(error))


class Misuse(OneProcess):
    def test_before_init(self):
        model = torch.nn.Linear(4, 4)
        self.expect_refusal("call poseidon_torch.init() first", model, sgd(model))
        # A process that has had no job, as this one before the other cases.
        with mock.patch.object(psd, "_process", psd._Process()):
            with self.assertRaisesRegex(psd.ConfigError, "init"):
                psd.rank()

    def test_init_twice(self):
        self.init()
        with self.assertRaisesRegex(psd.ConfigError, "init was called twice"):
            psd.init()

    def test_an_output_directory_where_poseidon_run_has_one(self):
        with mock.patch.dict(os.environ, {"POSEIDON_JOB": "job.prototxt", "POSEIDON_RANK": "0"}):
            with self.assertRaisesRegex(psd.ConfigError, "out: `poseidon run` has said where"):
                psd.init(out=self._scratch.name)

    def test_outside_torchrun(self):
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            value = os.environ.pop(name)
            with self.assertRaisesRegex(psd.ConfigError, f"no {name}; start this program by"):
                psd.init()
            os.environ[name] = value

    def test_models_that_cannot_be_exchanged(self):
        self.init()
        for said, model in (
            ("float64", torch.nn.Linear(4, 4, dtype=torch.float64)),
            ("device meta", torch.nn.Linear(4, 4, device="meta")),
            ("no parameters", torch.nn.Linear(4, 4).requires_grad_(False)),
            ("run the lazy module once", torch.nn.LazyLinear(4)),
        ):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
            optimizer.param_groups[0]["params"] = list(model.parameters())
            with self.subTest(said):
                self.expect_refusal(said, model, optimizer)

    def test_a_model_of_the_name_of_a_part_with_parameters_of_its_own(self):
        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(1))
                self.Head = torch.nn.Linear(4, 4)

            def forward(self, features):
                return self.Head(features) * self.scale

        self.init()
        model = Head()
        pass_of(model, psd.distribute(model, sgd(model)))

    def test_an_optimizer_of_another_model(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        self.expect_refusal("is not the model's", model, sgd(torch.nn.Linear(4, 4)))
        self.expect_refusal("takes a torch.nn.Module", sgd(model), model)

    def test_options_that_are_not_there(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        self.expect_refusal("'backward' or 'forward'", model, sgd(model), overlap="sideways")
        self.expect_refusal("Allowed: BYTES", model, sgd(model), policy="FASTEST")

    def test_a_norm_over_all_workers_that_nothing_synchronizes(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        with mock.patch.object(psd, "size", lambda: 2):
            self.expect_refusal(
                "1 is a SyncBatchNorm, which PyTorch has for GPUs", model, sgd(model)
            )
            with self.assertRaisesRegex(psd.ConfigError, "use another norm"):
                psd.DiLoCo(model, sgd(model))
        with self.assertRaisesRegex(psd.ConfigError, "1 is a .*, which synchronizes nothing"):
            check_norms(copy.deepcopy(model).to("meta"), 2)  # which is no CPU, as a GPU is none
        pass_of(model, psd.distribute(model, sgd(model)))  # alone there is nothing to synchronize

    def test_a_part_that_takes_no_hooks_trains_with_diloco(self):
        self.init()
        model = torch.jit.script(torch.nn.Linear(4, 4))
        optimizer = psd.DiLoCo(model, sgd(model), every=1)
        pass_of(model, optimizer)

    def test_a_part_that_takes_no_hooks_trains_where_none_are_needed(self):
        def model_of():
            torch.manual_seed(5)
            return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

        plain, whole, partly = model_of(), torch.jit.script(model_of()), model_of()
        partly[1] = torch.jit.script(partly[1])
        optimizer = sgd(plain)
        for _ in range(2):
            pass_of(plain, optimizer)
        for model, name in ((whole, "the model"), (partly, "1")):
            self.init()
            for what, options in (
                ("overlap='forward'", {"overlap": "forward"}),
                ("update='server'", {"update": "server"}),
                ("an example", {"example": torch.ones(2, 4)}),
            ):
                said = f"{name} is a ScriptModule of torch.jit's, which takes no hooks of its passes, as {what}"
                self.expect_refusal(said, model, sgd(model), **options)
            with self.assertRaisesRegex(psd.ConfigError, f"{name} is a ScriptModule.* profile"):
                psd.profile(model, torch.ones(2, 4))
            optimizer = psd.distribute(model, sgd(model))
            for _ in range(2):
                pass_of(model, optimizer)
            psd.shutdown()
            for ours, theirs in zip(model.parameters(), plain.parameters()):
                torch.testing.assert_close(ours, theirs)

    def test_hooks_do_not_stay_where_training_could_not_begin(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        with mock.patch("poseidon_torch._exchange.ChangeGuard", side_effect=ValueError("none")):
            with self.assertRaisesRegex(ValueError, "none"):
                psd.distribute(model, sgd(model))
        pass_of(model, sgd(model))  # on its own: no session takes its gradients

    def test_overlap_forward_needs_an_optimizer_by_parameter(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.LBFGS(model.parameters())
        self.expect_refusal("LBFGS may not allow", model, optimizer, overlap="forward")

    def test_what_is_compiled(self):
        def model_of():
            return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

        self.init()
        model = model_of()
        model[1] = torch.compile(model[1])
        self.expect_refusal("1 is compiled", model, sgd(model), overlap="forward")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            psd.distribute(model, sgd(model))
        psd.shutdown()
        psd.init(out=self._scratch.name)
        whole = torch.compile(model_of())
        self.expect_refusal("the model is compiled", whole, sgd(whole), overlap="forward")
        with self.assertWarnsRegex(UserWarning, "compile its blocks instead") as warned:
            psd.distribute(whole, sgd(whole))
        self.assertEqual(warned.filename, __file__)

    def test_set_up_in_a_thread_that_ends(self):
        """A helper thread, as a notebook has, need not live as long as the daemons that it has started."""
        model = torch.nn.Linear(4, 4)
        optimizers = []

        def set_up():
            psd.init(out=self._scratch.name)
            optimizers.append(psd.distribute(model, sgd(model)))

        thread = threading.Thread(target=set_up)
        thread.start()
        thread.join()
        self.addCleanup(psd.shutdown)
        for _ in range(3):
            pass_of(model, optimizers[0])
            time.sleep(0.1)

    def test_distribute_twice_and_a_model_that_changes(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4))
        optimizer = psd.distribute(model, sgd(model))
        self.expect_refusal("distribute was called twice", model, optimizer)
        with self.assertRaisesRegex(psd.ConfigError, "1 was set after distribute"):
            model.append(torch.nn.Linear(4, 4))
        with self.assertRaisesRegex(psd.ConfigError, "0.scale was set after distribute"):
            model[0].scale = torch.nn.Parameter(torch.ones(1))
        with self.assertRaisesRegex(RuntimeError, "0.weight was set after distribute"):
            model.load_state_dict(model.state_dict(), assign=True)
        linear, weight = model[0], model[0].weight
        linear.weight = weight  # which it is already
        model[0] = torch.nn.Identity()
        with self.assertRaisesRegex(psd.ConfigError, "0 was set after distribute"):
            model[0] = copy.deepcopy(linear)
        model[0] = linear
        pass_of(torch.nn.Linear(4, 4), optimizer)

    def test_another_model_in_the_memory_of_one_that_is_gone(self):
        """Only its layers are kept: the module that they were in is not."""
        self.init()

        def train():
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
            pass_of(model, psd.distribute(model, sgd(model), policy="ALL_RING"))

        train()
        gc.collect()
        kept = []
        for _ in range(100):  # some of them where the other one was
            kept.append(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))

    def test_a_parameter_that_is_unfrozen_later(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        model[0].requires_grad_(False)
        optimizer = psd.distribute(model, sgd(model))
        pass_of(model, optimizer)
        model[0].bias.requires_grad_(True)
        with self.assertRaisesRegex(psd.ConfigError, "0.bias was frozen when distribute"):
            pass_of(model, optimizer)

    def test_a_parameter_that_is_frozen_for_a_while(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        plain = copy.deepcopy(model)
        optimizer = psd.distribute(model, sgd(model))
        for net, steps in ((model, optimizer), (plain, sgd(plain))):
            for learns in (False, True):
                net[0].requires_grad_(learns)
                before = net[0].weight.detach().clone()
                pass_of(net, steps)
                self.assertEqual(net[0].weight.equal(before), not learns)
        for ours, theirs in zip(model.parameters(), plain.parameters()):
            self.assertTrue(ours.equal(theirs))

    def test_reentrant_checkpoints_exchange_more_often_but_rightly(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        plain = copy.deepcopy(model)
        psd.distribute(model, sgd(model))
        inputs = torch.ones(2, 4, requires_grad=True)
        for net in (model, plain):
            part = checkpoint(net[0], inputs, use_reentrant=True)
            checkpoint(
                net, checkpoint(net[1], part, use_reentrant=True), use_reentrant=True
            ).sum().backward()
        for ours, theirs in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad)

    def test_reentrant_checkpoints_of_a_shared_block(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        psd.distribute(model, sgd(model))
        part = torch.ones(2, 4, requires_grad=True)
        for _ in range(2):
            part = checkpoint(model[0], part, use_reentrant=True)
        with self.assertRaisesRegex(psd.ConfigError, "'0' got a second gradient.*use_reentrant=F"):
            model[1](part).sum().backward()
        with self.assertRaises(psd.PoseidonError):  # in the middle of an iteration
            psd.shutdown()

    def test_a_pass_that_an_exception_has_left(self):
        def refuse(_gradient):
            raise ValueError("bad")

        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        psd.distribute(model, sgd(model))
        inputs = torch.ones(2, 4, requires_grad=True)
        for hook, said in ((refuse, None), (lambda _: None, "left by an exception")):
            hidden = model[0](inputs)
            hidden.register_hook(hook)
            with self.assertRaisesRegex(psd.ConfigError if said else ValueError, said or "bad"):
                model[1](hidden).sum().backward()
        # Nor does a pass that comes by other layers only go unnoticed.
        with self.assertRaisesRegex(psd.ConfigError, "left by an exception"):
            model[0](inputs).sum().backward()
        with self.assertRaisesRegex(psd.ConfigError, "can neither go on nor end its training"):
            psd.shutdown()

    def test_a_loss_with_its_graph_is_reported_without_a_warning(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        psd.distribute(model, sgd(model))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            psd.report(model(torch.ones(2, 4)).sum())

    def test_sparse_gradients(self):
        self.init()
        model = torch.nn.Embedding(4, 4, sparse=True)
        psd.distribute(model, sgd(model))
        with self.assertRaisesRegex(psd.ConfigError, "sparse=False"):
            model(torch.tensor([1])).sum().backward()

    def test_hooks_of_a_step_that_is_done_by_layer(self):
        for options in ({"overlap": "forward"}, {"update": "server"}):
            self.init()
            model = torch.nn.Linear(4, 4)
            optimizer = psd.distribute(model, sgd(model), **options)
            pass_of(model, optimizer)
            for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
                handle = register(lambda *_: None)
                with self.assertRaisesRegex(psd.ConfigError, "hooks of its step"):
                    pass_of(model, optimizer)
                handle.remove()
                optimizer.step()
            psd.shutdown()

    def test_overlap_forward_without_step(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = psd.distribute(model, sgd(model), overlap="forward")
        pass_of(model, optimizer)
        model(torch.ones(2, 4)).sum().backward()
        # Clipping would see no gradients: they are not there before the update.
        with self.assertRaisesRegex(psd.ConfigError, "overlap='forward' there are no gradients"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with self.assertRaisesRegex(psd.ConfigError, "without optimizer.step"):
            model(torch.ones(2, 4)).sum().backward()
        with self.assertRaisesRegex(psd.ConfigError, "closure"):
            optimizer.step(lambda: 0.0)
        optimizer.step()
        psd.synchronize()
        model.weight.grad = torch.ones(4, 4)
        with self.assertRaisesRegex(psd.ConfigError, "p.grad that no backward.. has brought"):
            optimizer.step()

    def test_diloco_that_cannot_be(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        for said, options in (
            ("every is 0; it must be at least 1", {"every": 0}),
            (
                "fragments is 3; it must be at least 1, and at most every, 2",
                {"every": 2, "fragments": 3},
            ),
            (
                "overlap_steps is 5; it must be at least 0 and below every / fragments, 5",
                {"every": 10, "fragments": 2, "overlap_steps": 5},
            ),
            ("mixing is 1.5; it must be from 0 to 1", {"mixing": 1.5}),
            ("outer_lr is nan; it must be a number from 0 on", {"outer_lr": float("nan")}),
            ("outer_momentum is -0.9; it must be", {"outer_momentum": -0.9}),
            ("so is every here", {"local_steps": 50}),
            ("give overlap_steps", {"wait_for_all": False}),
            ("fragments is 2, and the model has 1 layers", {"fragments": 2}),
            ("no such option: size, wings", {"wings": 2, "size": 1}),
            (
                "step_deadline_seconds is 0; it must be a number from 0.1",
                {"step_deadline_seconds": 0},
            ),
        ):
            with self.subTest(said), self.assertRaises(psd.ConfigError) as refused:
                psd.DiLoCo(model, sgd(model), **options)
            self.assertIn(said, str(refused.exception))
        # What the job config's own check finds.
        with self.assertRaisesRegex(psd.ConfigError, "many steps have changed has no factors"):
            psd.DiLoCo(model, sgd(model), policy="ALL_SFB")

    def test_diloco_of_a_model_that_changes(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        model[0].requires_grad_(False)
        optimizer = psd.DiLoCo(model, sgd(model), every=2)
        pass_of(model, optimizer)
        with self.assertRaisesRegex(psd.ConfigError, "2 was set after distribute"):
            model.append(torch.nn.Linear(4, 4))
        model[0].bias.requires_grad_(True)
        with self.assertRaisesRegex(psd.ConfigError, "0.bias was frozen when distribute"):
            pass_of(model, optimizer)
        model[0].bias.requires_grad_(False)
        optimizer.add_param_group({"params": torch.nn.Linear(4, 4).parameters()})
        with self.assertRaisesRegex(psd.ConfigError, "group 1 .* that is not the model's"):
            pass_of(model, optimizer)

    def test_diloco_of_a_model_that_is_loaded_later(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        pass_of(model, psd.DiLoCo(model, sgd(model), every=2))
        checkpoint = model.state_dict()
        copy.deepcopy(model).load_state_dict(checkpoint)
        for part, state in ((model, checkpoint), (model[0], model[0].state_dict())):
            with self.assertRaisesRegex(psd.ConfigError, "load before DiLoCo, or into a copy"):
                part.load_state_dict(state)
        psd.shutdown()
        model.load_state_dict(checkpoint)

    def test_diloco_with_an_optimizer_that_another_one_takes_the_place_of(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        psd.DiLoCo(model, sgd(model), every=2)
        other = sgd(model)
        pass_of(model, other)
        pass_of(model, other)
        with self.assertRaisesRegex(psd.ConfigError, "another optimizer.* made 3 steps of the"):
            pass_of(model, other)
        learned = model.weight.detach().clone()
        with self.assertRaisesRegex(psd.ConfigError, "so that no exchange comes"):
            psd.shutdown()
        self.assertTrue(model.weight.equal(learned))

    def test_diloco_with_optimizers_beside_the_one_that_is_counted(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        optimizer = psd.DiLoCo(model, sgd(model[0]), every=1)
        within = sgd(model[0])  # whose step is a part of another one's, as in sharpness-aware ones
        for _ in range(5):
            pass_of(model, sgd(model[1]))
            within.step()
            optimizer.step()
        self.assertEqual(psd.iteration(), 5)

    def test_diloco_takes_nothing_that_a_parameter_rounds_off_for_learned(self):
        self.init()
        model = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        optimizer = psd.DiLoCo(model, sgd(model), every=1, outer_lr=0.7, outer_momentum=0.0)
        model(torch.ones(2, 4, dtype=torch.bfloat16)).square().sum().backward()
        optimizer.step()
        (fragment,) = psd._process.exchange._fragments  # pylint: disable=protected-access
        outer = [value.detach().clone() for value in fragment.outer]
        self.assertFalse(outer[0].equal(outer[0].bfloat16().float()), "nothing is rounded off")
        optimizer.zero_grad()
        optimizer.step()
        for before, after in zip(outer, fragment.outer):
            self.assertTrue(after.equal(before))

    def test_a_job_config_that_says_otherwise(self):
        folder = pathlib.Path(self._scratch.name)
        config = folder / "config.prototxt"
        config.write_text(
            "cluster { workers: 1 servers: 1 } communication { policy: ALL_RING local_steps: 4 fragments: 2 }"
        )
        command = [ranks.ROOT / "build/bin/poseidon", "run", f"--config={config}"]
        command += [f"--out={folder}", "--", sys.executable, ranks.HERE / "programs/local_steps.py"]
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = (folder / "logs/worker-0.log").read_text().splitlines()
        self.assertEqual(
            [line for line in said if line.startswith(("refused", "trained"))],
            [
                "refused: communication.local_steps is 4 in the job config, and distribute exchanges "
                "gradients in every step; leave it out there, or use DiLoCo",
                *(
                    "refused: the job config's communication says local_steps: 4 fragments: 2 "
                    "overlap_steps: 0, and DiLoCo was called with every, which is local_steps there, "
                    f"fragments and overlap_steps as in {asked}; make them alike"
                    for asked in (
                        "local_steps: 100 fragments: 1 overlap_steps: 0",
                        "local_steps: 1 fragments: 1 overlap_steps: 0",
                        "local_steps: 4 fragments: 2 overlap_steps: 1",
                    )
                ),
                "trained",
            ],
        )

    def test_a_fork(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = psd.distribute(model, sgd(model))
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=in_a_fork, args=(queue,))
        child.start()
        self.assertIn("only that process can use it", queue.get(timeout=20))
        child.join(20)
        self.assertEqual(child.exitcode, 0)
        # As DataLoader's workers do; the parent goes on.
        data = torch.utils.data.TensorDataset(torch.ones(8, 4))
        for _ in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2):
            pass_of(model, optimizer)


if __name__ == "__main__":
    timed_tests.main()
