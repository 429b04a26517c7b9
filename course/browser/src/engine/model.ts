/** The shipped model's files: fetched once a visit, when the engine is first started. */

import { loadArchive } from "../archives";
import { asset, get } from "../assets";
import { onceEach } from "../once";

/** The archives that the engine is in, beside the judge's. */
declare const ENGINE_ARCHIVES: string[];

export interface Model {
  config: string;
  weights: ArrayBuffer;
  /** The archives of the Python that runs it. */
  archives: string[];
}

export const loadModel = onceEach<void, Model>(fetchModel);

async function fetchModel(): Promise<Model> {
  const [config, weights] = await Promise.all([
    get(asset("model/config.json")).then((response) => response.text()),
    get(asset("model/model.safetensors")).then((response) => response.arrayBuffer()),
    ...ENGINE_ARCHIVES.map(loadArchive),
  ]);
  return { config, weights, archives: ENGINE_ARCHIVES };
}
