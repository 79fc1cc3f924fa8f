#!/usr/bin/env python3
"""With update="server" what can't work is refused with a sentence that says what to do, and the optimizer's state is
the servers'."""

import torch

import timed_tests
from one_process import OneProcess, pass_of, psd, sgd


class ServerMisuse(OneProcess):
    def test_what_servers_do_not_update(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        kinds = torch.optim
        for said, optimizer, options in (
            ("Adam needs update='worker'", kinds.Adam(model.parameters()), {}),
            ("amsgrad=True", kinds.AdamW(model.parameters(), amsgrad=True), {}),
            ("leave policy and codec out", sgd(model), {"policy": "ALL_RING"}),
            ("leave policy and codec out", sgd(model), {"codec": "BF16"}),
            ("is in none of the optimizer's groups", kinds.SGD([model.weight], lr=0.1), {}),
        ):
            with self.subTest(said):
                self.expect_refusal(said, model, optimizer, update="server", **options)
        self.expect_refusal("'worker' or 'server'", model, sgd(model), update="elsewhere")
        half = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        self.expect_refusal("parameter of torch.bfloat16", half, sgd(half), update="server")
        partly = torch.nn.Linear(4, 4)
        adamw = kinds.AdamW(partly.parameters())
        partly(torch.ones(2, 4)).sum().backward()
        partly.bias.grad = None
        adamw.step()
        self.expect_refusal("state of some parameters only", partly, adamw, update="server")

    def test_what_servers_that_update_do_not_allow(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = psd.distribute(model, sgd(model), update="server")
        pass_of(model, optimizer)
        with self.assertRaisesRegex(psd.ConfigError, "load it before"):
            optimizer.load_state_dict(sgd(model).state_dict())
        model(torch.ones(2, 4)).sum().backward()
        said = "update='server' there are no gradients between backward"
        with self.assertRaisesRegex(psd.ConfigError, said):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with self.assertRaisesRegex(psd.ConfigError, said):
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        with self.assertRaisesRegex(psd.ConfigError, said):
            model.weight.grad.norm()
        if hasattr(torch.amp, "GradScaler"):
            scaler = torch.amp.GradScaler("cpu")
            scaler.scale(torch.ones(()))
            with self.assertRaisesRegex(psd.ConfigError, said):
                scaler.step(optimizer)
        with self.assertRaisesRegex(psd.ConfigError, "between backward.. and step"):
            optimizer.state_dict()
        with self.assertRaisesRegex(psd.ConfigError, "without optimizer.step"):
            model(torch.ones(2, 4)).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.2
        with self.assertRaisesRegex(psd.ConfigError, "have changed between backward"):
            optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        model.bias.grad = torch.ones(4)
        with self.assertRaisesRegex(psd.ConfigError, "p.grad that no backward.. has brought"):
            optimizer.step()
        optimizer.zero_grad()
        # As in plain PyTorch, a bad setting is refused.
        optimizer.param_groups[0]["lr"] = -1.0
        with self.assertRaisesRegex(psd.ConfigError, "lr is -1; it must be"):
            model(torch.ones(2, 4)).sum().backward()
        with self.assertRaises(psd.PoseidonError):
            psd.shutdown()

    def test_values_that_are_set_under_servers_that_update(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Embedding(4, 4), torch.nn.Linear(4, 4))
        optimizer = psd.distribute(model, sgd(model), update="server", overlap="forward")
        tokens = torch.tensor([1, 2])

        def refused(said, do):
            with self.assertRaisesRegex(psd.ConfigError, said):
                do()

        def write():
            with torch.no_grad():
                model[0].weight.clamp_(0, 0.1)

        for part in (model, model[1]):
            refused(
                "servers have the parameters.*load them before", lambda: part.load_state_dict({})
            )
        write()
        refused("layer '0' was written to", model(tokens).sum().backward)
        psd.shutdown()
        psd.init(out=self._scratch.name)
        optimizer = psd.distribute(model, sgd(model), update="server", overlap="forward")
        model(tokens).sum().backward()
        optimizer.step()
        write()
        refused("layer '0' was written to", lambda: model(tokens))
        psd.shutdown()
        psd.init(out=self._scratch.name)
        optimizer = psd.distribute(model, sgd(model), update="server")
        model[0].max_norm = 0.01
        refused("layer '0' was written to", model(tokens).sum().backward)

    def test_groups_that_change_under_servers_that_update(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, dampening=0.5)
        psd.distribute(model, optimizer, update="server")
        pass_of(model, optimizer)
        optimizer.param_groups[0]["momentum"] = 0.9
        with self.assertRaisesRegex(psd.ConfigError, "got a momentum after steps without one"):
            pass_of(model, optimizer)
        optimizer.param_groups[0]["momentum"] = 0.0
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
        with self.assertRaisesRegex(psd.ConfigError, "got another group after distribute"):
            pass_of(model, optimizer)

    def test_servers_that_update_need_all_gradients(self):
        self.init()
        model = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
        psd.distribute(model, sgd(model), update="server")
        with self.assertRaisesRegex(psd.ConfigError, "no gradient in this pass"):
            model[0](torch.ones(2, 4)).sum().backward()
        with self.assertRaises(psd.PoseidonError):  # in the middle of an iteration
            psd.shutdown()

    def test_a_step_that_is_left_out_before_the_end(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = psd.distribute(model, sgd(model), update="server")
        pass_of(model, optimizer)
        model(torch.ones(2, 4)).sum().backward()
        with self.assertRaisesRegex(psd.ConfigError, "ends after .* without optimizer.step"):
            psd.shutdown()

    def test_the_state_ends_with_the_servers(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        psd.distribute(model, optimizer, update="server")
        self.assertEqual(optimizer.state_dict()["state"], {})
        pass_of(model, optimizer)
        psd.shutdown()
        with self.assertRaisesRegex(psd.ConfigError, "before shutdown"):
            optimizer.state_dict()
        psd.init(out=self._scratch.name)
        self.expect_refusal("has ended with the servers", model, optimizer, update="server")
        # With a state it is an optimizer as any other, here and in a next job.
        momentum = torch.ones(4, 4), torch.ones(4)
        loaded = optimizer.__class__(model.parameters(), lr=0.1, momentum=0.5)
        for parameter, value in zip(model.parameters(), momentum):
            loaded.state[parameter]["momentum_buffer"] = value
        optimizer.load_state_dict(loaded.state_dict())
        self.assertEqual(len(optimizer.state_dict()["state"]), 2)
        psd.distribute(model, optimizer, update="server")
        torch.set_default_dtype(torch.float64)  # which is the program's affair
        self.addCleanup(torch.set_default_dtype, torch.float32)
        state = optimizer.state_dict()["state"]
        for number, value in enumerate(momentum):
            self.assertTrue(state[number]["momentum_buffer"].equal(value))

    def test_without_momentum_no_state_ends_with_the_servers(self):
        model = torch.nn.Linear(4, 4)
        optimizer = sgd(model)
        for _ in range(2):
            self.init()
            psd.distribute(model, optimizer, update="server")
            pass_of(model, optimizer)
            psd.shutdown()
            self.assertEqual(optimizer.state_dict()["state"], {})

    def test_where_the_loop_begins_after_a_checkpoint(self):
        """SGD's state does not count steps (docs/pytorch.md)."""
        for optimizer_of, steps in (
            (lambda one: torch.optim.AdamW(one.parameters()), 3),
            (lambda one: torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9), 1),
            (sgd, 0),
        ):
            model = torch.nn.Linear(4, 4)
            before = optimizer_of(model)
            for _ in range(3):
                pass_of(model, before)
            optimizer = optimizer_of(model)
            optimizer.load_state_dict(before.state_dict())
            begun = int(any(optimizer.state.values()))
            self.init()
            psd.distribute(model, optimizer, update="server")
            with self.subTest(type(optimizer).__name__):
                self.assertEqual(psd.iteration(), steps)
                self.assertEqual(begun, min(steps, 1))
            psd.shutdown()

    def test_a_model_may_change_after_a_shutdown_that_failed(self):
        self.init()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4))
        optimizer = psd.distribute(model, sgd(model), update="server", overlap="forward")
        pass_of(model, optimizer)
        with torch.no_grad():
            model[0].weight.clamp_(0, 0.1)
        with self.assertRaisesRegex(psd.ConfigError, "was written to after distribute"):
            psd.shutdown()
        model.append(torch.nn.Linear(4, 4))
        optimizer.zero_grad()
        optimizer.step(lambda: model(torch.ones(2, 4)).sum())


if __name__ == "__main__":
    timed_tests.main()
