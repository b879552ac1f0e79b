from nova.backup.api import API
