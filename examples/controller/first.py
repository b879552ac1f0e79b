from rpcmq import Service, rpc


class Greeter:
    def greet(self, ctx, name):
        return f"Hello, {name} (asked by {ctx['user']})"


with Service("greeter", Greeter()):
    print(rpc.call({"user": "admin"}, "greeter", {"method": "greet", "args": {"name": "Alice"}}))
