"""JSON of what the services hand around."""

import datetime
import json
import types

SIMPLE = [types.NoneType, types.BooleanType, types.IntType, types.LongType,
          types.FloatType]


def to_primitive(value, level=0):
    """Dicts, lists and scalars, of whatever else was given."""
    if level > 3:
        return u'?'
    if type(value) in SIMPLE:
        return value
    if isinstance(value, types.DictType):
        return dict([(k, to_primitive(v, level)) for k, v in value.items()])
    if isinstance(value, datetime.datetime):
        return unicode(value.isoformat())
    # No text has this: not in Python 2.
    if hasattr(value, '__iter__'):
        return [to_primitive(v, level) for v in value]
    if hasattr(value, '__dict__'):
        return to_primitive(value.__dict__, level + 1)
    return value


def dumps(value):
    return json.dumps(value, default=to_primitive)


def loads(text):
    return json.loads(text)
