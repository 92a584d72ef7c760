"""What was handed over, on the Hugging Face hub."""

from pathlib import Path

from cluster.errors import BadInput
from tasks.data.reading.remote import HUB


def repository(url: str) -> str:
    """`org/name` of `hf://org/name`. Raises BadInput for anything else."""
    name = url.removeprefix(HUB)
    if not url.startswith(HUB) or name.count("/") != 1 or not all(name.split("/")):
        raise BadInput(f"--push {url} is not of the form {HUB}org/name")
    return name


def push(path: Path, url: str) -> str:
    """Upload a folder, or one file, to a model's repository, which is made private if there is
    none; the page. Raises BadInput where the hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api, name = HfApi(), repository(url)
    try:
        page = str(api.create_repo(name, private=True, exist_ok=True))
        if path.is_dir():
            api.upload_folder(repo_id=name, folder_path=path)
        else:
            api.upload_file(repo_id=name, path_or_fileobj=path, path_in_repo=path.name)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise BadInput(
            f"{url} was not written: {error}. `hf auth login` signs in, or HF_TOKEN; "
            f"{path} is complete: `hf upload {name} {path}` sends it later"
        ) from error
    return page
