/** The shipped model's files: fetched once a visit, when the engine is first started. */

import { asset } from "../assets";

export interface Model {
  config: string;
  weights: ArrayBuffer;
}

let model: Promise<Model> | null = null;

/** Load the model once; a failed load is tried again the next time. */
export function loadModel(): Promise<Model> {
  if (!model) {
    model = fetchModel();
    model.catch(() => (model = null));
  }
  return model;
}

async function fetchModel(): Promise<Model> {
  const [config, weights] = await Promise.all([get("model/config.json"), get("model/model.safetensors")]);
  return { config: await config.text(), weights: await weights.arrayBuffer() };
}

async function get(path: string): Promise<Response> {
  const response = await fetch(asset(path));
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response;
}
