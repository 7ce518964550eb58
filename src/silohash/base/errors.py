"""The errors that a user can fix. Each class means one thing that can be wrong, and has a stable key.

Texts of errors may change; the keys stay. They are printed by the command line and stand in the answers of the HTTP API.
"""

import re
from typing import ClassVar, Self

from silohash.base.visible import visible_lines


class UserError(Exception):
    """An error that the user can fix. Its text says what is wrong, which value was found, and what to do.

    The command line prints the text and the key, and exits with status 2. Values in the text may come from files of others,
    so its invisible characters are replaced by their code points. Raise one of the subclasses.

    Attributes:
        key: The stable key of the error, such as ``unknown-name``: the name of its class.
    """

    key: ClassVar[str] = "user-error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.key = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, message: str = "") -> None:
        super().__init__(visible_lines(message))

    def reworded(self, message: str) -> Self:
        """Return an error of the same class with another text."""
        error = type(self).__new__(type(self), visible_lines(message))
        error.__dict__.update(self.__dict__)
        return error


def restored(key: str, message: str) -> UserError | None:
    """Return the error that another process sent as a key and a text, or None if the key is unknown here."""
    kind = {kind.key: kind for kind in UserError.__subclasses__()}.get(key)
    return None if kind is None else kind.__new__(kind, visible_lines(message))


# Names, options and values that are given.


class UnknownName(UserError):
    """A name does not exist, such as that of a method, a data set or a measure. Use one that the message lists."""


class UnknownOption(UserError):
    """An option or a key does not exist there. Use one that the message lists."""


class WrongChoice(UserError):
    """A value is not one of the few that are possible. Use one that the message lists."""


class OutOfRange(UserError):
    """A number lies outside its range, or is not a number. Use one in the range that the message states."""


class WrongType(UserError):
    """A value has another type than it needs. Give it in a form that the message names."""


class WrongForm(UserError):
    """A text is not written as it must be, or is not UTF-8. Write it like the example of the message."""


class WrongAddress(UserError):
    """A text is not a usable address of a server. Write it like the example of the message."""


class InvalidName(UserError):
    """A new name has characters or a length that is not possible there. Choose another name."""


class AlreadyExists(UserError):
    """A file, folder, run, index or account has this name already. Choose another name, or remove it first."""


class RepeatedValue(UserError):
    """Something is given twice that may be given once. Remove one of the two."""


class SettingNeeded(UserError):
    """A setting is needed and not set. Set it as the message says."""


class ConflictingOptions(UserError):
    """Two settings exclude each other. Change or remove one of them."""


class NoEffect(UserError):
    """A setting does not apply to what it is given for. Remove it."""


class OneInputNeeded(UserError):
    """Exactly one of several inputs is needed, and none or more are given. Give one of them."""


class EmptyInput(UserError):
    """An input is empty, or lacks a value. Give the value, or leave the item out."""


class ChoiceNeeded(UserError):
    """Several things fit. Name one of those that the message lists."""


# Arrays and tables.


class WrongShape(UserError):
    """An array has another shape than it needs. Give it in the shape that the message states."""


class NotFinite(UserError):
    """An array holds NaN or infinity. Check what computed it."""


class LengthsDiffer(UserError):
    """Two inputs differ in their number of rows, items or columns. Give them for the same items."""


class BitsDiffer(UserError):
    """Codes are longer or shorter than those they are compared with. Use codes of one length."""


class OrderDiffers(UserError):
    """The rows of two inputs are in different orders. Bring them into the same order."""


class MixedKinds(UserError):
    """Values or results are of two kinds, of which only one may occur. Give all of the same kind."""


class AmbiguousForm(UserError):
    """An array can be read in several ways. Give it in another of the forms that the message names."""


# Files.


class MissingFile(UserError):
    """A file or folder does not exist. Check the path, or restore or add the file."""


class WrongKindOfPath(UserError):
    """A path leads to a folder instead of a file, or the reverse. Check the path."""


class WrongKindOfFile(UserError):
    """A file is of another kind or format than needed, or its name ends otherwise. Give one that the message names."""


class DamagedFile(UserError):
    """A file is damaged, incomplete, or was replaced. Restore it, or make it again."""


class UnreadableFile(UserError):
    """The operating system or a database refuses to read a file. Check its permissions."""


class UnwritableFile(UserError):
    """The operating system refuses to write a file. Choose another folder, or correct its permissions."""


class ReadableByOthers(UserError):
    """A file or folder that must be private is open to others. Run the chmod of the message."""


class DiskFull(UserError):
    """A file cannot be written because the disk is full. Free some space, and run the command again."""


class ForeignFiles(UserError):
    """Files that silohash did not write are in the place of its output. Choose another place."""


class InUse(UserError):
    """Another process uses a folder, file or index. Wait until it has finished."""


class OtherVersion(UserError):
    """A file or message was written by another version of silohash. Use that version, or make the file again."""


class InvalidFile(UserError):
    """A file with settings has something in it that is not valid. Correct what the message names."""


class BadLine(UserError):
    """A line of a text file cannot be used. Correct the line that the message names."""


class MissingContent(UserError):
    """A file lacks a part that is needed, such as a column or a variable. Use a complete file."""


class UnreadablePicture(UserError):
    """A picture cannot be decoded. Replace it, or leave the item out."""


class FilesDiffer(UserError):
    """Files of one data set do not fit together. Take all of them from one release."""


# Data.


class InvalidArchive(UserError):
    """An archive contradicts itself, as with texts of other items. Correct the code that makes it."""


class NothingUsable(UserError):
    """Nothing of what is given can be used. Check the first reason, which the message states."""


class TooFew(UserError):
    """There are fewer items, classes or runs than asked for. Ask for fewer, or add some."""


class LabelsNeeded(UserError):
    """Items need labels for this. Use an archive with labels, or what the message proposes instead."""


class ModalityNeeded(UserError):
    """Pictures or texts are needed, and there are none. Use an archive that has them."""


class PairsNeeded(UserError):
    """Items with both a picture and a text are needed. Use an archive that has some."""


class ValidationNeeded(UserError):
    """Validation queries are needed. Hold some back with evaluate.validation."""


class ProtocolUnmet(UserError):
    """The files of a data set do not have what a protocol states. Complete them, or choose another protocol."""


class DataChanged(UserError):
    """The archive of a run or partition has changed since then. Restore it, or train again."""


class ArchiveUnsuitable(UserError):
    """An archive has other features or labels than the run was trained on. Use one of the same kind."""


# Methods, networks and features.


class MethodsConflict(UserError):
    """Federated methods or rules cannot be combined. Leave one of them out."""


class UnsuitableMethod(UserError):
    """A method does not fit the model, its widths or the run. Choose another method, or change the model."""


class UnsuitableFeatures(UserError):
    """Features do not fit the data or the method. Choose another kind of features."""


class UnsuitableMeasure(UserError):
    """A measure cannot be computed or compared here. Choose another measure."""


class UnsupportedNetwork(UserError):
    """A published network is not built like those that can be read. Choose another one, or another pooling."""


class NetworkUnavailable(UserError):
    """A published network is not on this machine. Give its folder, or allow the download."""


class NetworkChanged(UserError):
    """A published network has changed since it was first read. Restore it, or train again."""


class RevealsItems(UserError):
    """A server could learn items of a silo. Permit it, encrypt the exchange, or change the method."""


class NotPrivate(UserError):
    """The method or model cannot be trained with differential privacy. Choose another one."""


class Diverged(UserError):
    """Training gave values that are not finite. Lower the learning rate, or clip the updates."""


class DeviceUnavailable(UserError):
    """The device for training or encoding is not available. Use another device."""


# Runs and studies.


class NotARun(UserError):
    """A folder does not hold a run. Give the folder of a run, or train one."""


class RunChanged(UserError):
    """A run or search was started with other settings. Restore them, or choose a new folder."""


class RunsDiffer(UserError):
    """Runs are on other data or were measured differently. Compare runs with the same data and evaluation."""


class ModelMissing(UserError):
    """A run does not have the model yet, or not any more. Train it, or make the index again."""


class ModelsDiffer(UserError):
    """Codes come from different models. Encode both sides with one model."""


class CannotEncode(UserError):
    """A model cannot encode such items or queries. Use another model or query, or train again."""


class NotMeasured(UserError):
    """A run does not have figures yet. Evaluate it first."""


class NotExportable(UserError):
    """A model cannot be written as ONNX. Use silohash encode."""


class WrongValue(UserError):
    """A setting of a config has a value that it cannot have. Change it as the message says.

    Attributes:
        setting: The dotted key of the setting.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class WrongOverride(UserError):
    """A setting of the command line has a value that it cannot have. Change it as the message says.

    Attributes:
        override: The override, such as ``train.batch=0``.
        reason: What is wrong with it, as a sentence.
    """

    def __init__(self, override: str, reason: str, *, place: str = "--set ") -> None:
        super().__init__(f'{place}"{override}": {reason}')
        self.override = override
        self.reason = reason


# Search.


class NotIndexed(UserError):
    """No index exists, or it lacks items. Build it with silohash index."""


class UnknownItem(UserError):
    """An item is not in the index. Check its id."""


class IndexDiffers(UserError):
    """An index belongs to another silo or modality, or differs from its copy. Index the silo again."""


class CopyMissing(UserError):
    """A server does not hold the copy of an index. Run silohash index move."""


class NotSearchable(UserError):
    """A silo cannot be searched. The message has the reason, which its operator can mend."""


class NotFound(UserError):
    """A silo or an item that a request names does not exist. Check the names."""


class Unavailable(UserError):
    """A silo that a request needs does not answer. Try again later."""


class LimitReached(UserError):
    """An asker has reached a limit of a silo's policy. Try again later."""


class TimeOver(UserError):
    """The sender of a request does not wait for its answer any more. Allow more time."""


class UnreadableMessage(UserError):
    """A message is damaged, or was not sent by silohash. Use the same version everywhere."""


class NotPermitted(UserError):
    """A silo, a policy or an account does not permit this. Leave it out, or let the operator permit it."""


class QueryUnsuitable(UserError):
    """A query is of another kind than the model was trained on. Ask with the kind that the message names."""


class UnknownWords(UserError):
    """No word of a text is known. Use other words, such as those that the message lists."""


# Training across machines.


class TooFewSilos(UserError):
    """Too few silos take part or answer. Start them, and continue the run."""


class SilosDiffer(UserError):
    """Silos have different data or settings, where they must be equal. Make them equal."""


class NotAKit(UserError):
    """A folder is not the kit of a member. Make kits with silohash federation kits."""


class JobFailed(UserError):
    """A job or worker ended before its work was done. Follow the message or the logs, and resume the run."""


class JobLost(UserError):
    """The engine ended a job, or the server died. Start the run again: it continues after its last round."""


class UnusableSecret(UserError):
    """A key or token is missing, unsafe, or not the one that was used. Give all silos the same key file."""


class NotSupported(UserError):
    """This is not possible here: the platform, the data or a running program rules it out. Do what the message proposes."""


# Services.


class ServerUnreachable(UserError):
    """A server does not answer, or is not one of silohash. Check that it runs, and its address."""


class RequestRefused(UserError):
    """A server refuses a request. The message has its reason."""


class AddressUnavailable(UserError):
    """An address cannot be listened on. Choose another port, or stop the program that uses it."""


class AuditLogBroken(UserError):
    """An audit log was changed or cut off. Follow the message."""


class AuditFailed(UserError):
    """An answer is not released, because it cannot be written to the audit log. Free some space."""


class UploadRefused(UserError):
    """An uploaded picture is refused. Send another one.

    Attributes:
        status: HTTP status code of the refusal.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


# This installation.


class DependencyMissing(UserError):
    """A package is not installed. Install it as the message says."""


class BrokenPackage(UserError):
    """A package that extends silohash is broken. Repair, reinstall or remove it."""


class OutOfMemory(UserError):
    """There is not enough memory. Give fewer items at a time."""
